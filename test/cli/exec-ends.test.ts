/** What is left of the command of `outpost exec` when either of the two ends. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { test, type TestContext } from 'node:test'
import { startTicksOf } from '../../src/supervisor/process-identity.ts'
import { eventually } from '../helpers/eventually.ts'

const urlOf = (path: string) => new URL(`../../src/${path}`, import.meta.url).href
const RUN = `
  import { Program } from '${urlOf('cli/commands/exec/program.ts')}'
  import { SignalForwarder } from '${urlOf('supervisor/signal-forwarder.ts')}'
  const signals = new SignalForwarder(1000)
  const command = ['sh', '-c', process.argv[1]]
  process.exitCode = await new Program({ command, signals, killTimeoutMs: 1000 }, process.env).run()
  signals.release()
  signals.detach()
`

/** Runs a shell command as `exec` does, in a process of its own; resolves with the process ID that the command prints. */
async function running(t: TestContext, script: string) {
  const child = spawn(process.execPath, ['--input-type=module', '-e', RUN, script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.after(() => child.kill('SIGKILL'))
  const ended = once(child, 'exit')
  const failed = ended.then(() => assert.fail('the process ended before it printed a process ID'))
  const [line] = (await Promise.race([once(createInterface({ input: child.stdout }), 'line'), failed])) as [string]
  const pid = Number(line)
  assert.ok(pid > 1)
  t.after(() => {
    if (startTicksOf(pid) !== undefined) process.kill(pid, 'SIGKILL')
  })
  return { child, ended, pid }
}

/** Whether the process that watches over a command runs: exec starts it right after the command. */
function isWatched(pid: number): boolean {
  return readdirSync('/proc').some((name) => {
    try {
      return readFileSync(`/proc/${name}/cmdline`, 'latin1').includes(`outpost-watchdog\0${pid}\0`)
    } catch {
      return false // no process, or an ended one
    }
  })
}

test('a command is ended when exec is killed', async (t) => {
  const { child, pid } = await running(t, 'echo $$; exec sleep 600')
  await eventually(() => isWatched(pid), 'the command is watched')
  child.kill('SIGKILL')
  await eventually(() => startTicksOf(pid) === undefined, 'the command has ended')
})

test('processes left in the process group end with the command', async (t) => {
  const { ended, pid } = await running(t, 'sleep 600 >/dev/null 2>&1 & echo $!; exit 7')
  assert.deepEqual(await ended, [7, null])
  await eventually(() => startTicksOf(pid) === undefined, 'what it has left behind')
})
