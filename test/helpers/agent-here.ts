/**
 * An agent in the test's own process: the command line, the configuration, the rooms and the listener are those of
 * `outpost agent`, and only the process around them is missing. One in a process of its own costs ten times as much CPU;
 * it is for tests that kill it, look at its process, or touch the files of a database that it has open.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { runCommand } from '../../src/cli/command.ts'
import { programVersion } from '../../src/cli/version.ts'
import type { Running } from '../../src/daemon.ts'

export interface AgentHere {
  readonly url: string
  readonly port: number
  readonly stdout: () => string
  /** What it has logged. */
  readonly stderr: () => string
  /** What SIGHUP does. */
  readonly reload: () => void
  /** What SIGTERM does. */
  readonly stop: () => Promise<void>
}

/** What an agent of this process prints stands between the results of tests otherwise. */
const printed = new AsyncLocalStorage<(text: string) => void>()
const { stdout } = process
const write = stdout.write.bind(stdout)
Object.defineProperty(stdout, 'write', {
  value(...given: Parameters<typeof write>) {
    const take = printed.getStore()
    if (!take) return write(...given)
    take(String(given[0]))
    return true
  },
})

/** `args` are those of `outpost agent`. Rejects with what a process would have said when it does not start. */
export async function agentHere(
  t: Pick<TestContext, 'after'>,
  args: readonly string[],
  { env = {} }: { readonly env?: Readonly<Record<string, string>> } = {},
): Promise<AgentHere> {
  const folder = mkdtempSync(join(tmpdir(), 'outpost-here-'))
  const log = join(folder, 'log')
  const config = join(folder, 'log.hcl')
  writeFileSync(config, `log_file = "${log}"\n`)
  Object.assign(process.env, env)
  let [said, faults] = ['', '']
  const held: { agent?: Running } = {}
  const stop = async () => {
    const { agent } = held
    delete held.agent
    await agent?.stop()
    for (const name of Object.keys(env)) delete process.env[name]
  }
  t.after(async () => {
    await stop()
    rmSync(folder, { recursive: true, force: true })
  })
  const io = {
    out: (text: string) => void (said += text),
    err: (text: string) => void (faults += text),
    env: process.env,
  }
  const { startAgent } = await import('../../src/daemon.ts')
  await printed.run(
    (text) => void (said += text),
    () =>
      runCommand(['agent', ...args, '-config', config], io, {
        async startAgent(options) {
          held.agent = await startAgent(options, programVersion())
          return 0
        },
      }),
  )
  if (!held.agent) throw new Error(`the agent exited: ${faults}`)
  const { url } = held.agent
  return {
    url,
    port: Number(new URL(url).port),
    stdout: () => said,
    stderr: () => readFileSync(log, 'utf8'),
    reload: () => void held.agent?.reload(),
    stop,
  }
}
