/**
 * An agent in the process of the test: command line, configuration, modules and listener are those of `outpost agent`. A
 * separate process costs ten times as much CPU; it is for tests that kill the agent, inspect its process, or modify the
 * files of an open database.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import vm from 'node:vm'
import { runCommand } from '../../src/cli/command.ts'
import { programVersion } from '../../src/cli/commands/version.ts'
import type { Running } from '../../src/daemon/start-agent.ts'

export interface AgentHere {
  readonly url: string
  readonly port: number
  readonly stdout: () => string
  /** Its log, complete up to some milliseconds ago, and completely once it has stopped. */
  readonly stderr: () => string
  /** The effect of SIGHUP. */
  readonly reload: () => void
  /** The effect of SIGTERM. */
  readonly stop: () => Promise<void>
}

/** Output of a start in this process, which would otherwise be mixed with the test results. */
const printed = new AsyncLocalStorage<{ readonly take: (text: string) => void; isStarting: boolean }>()
const { stdout } = process
const write = stdout.write.bind(stdout)
Object.defineProperty(stdout, 'write', {
  writable: true,
  configurable: true,
  value(...given: Parameters<typeof write>) {
    const agent = printed.getStore()
    const [text, ...rest] = given
    agent?.take(typeof text === 'string' ? text : Buffer.from(text).toString())
    if (!agent?.isStarting) return write(...given)
    for (const written of rest) if (typeof written === 'function') queueMicrotask(() => written(null))
    return true
  },
})

/**
 * Each seal forces a full collection (`storage/barrier/forced-gc.ts`), which takes long in a process with the memory of many tests. Tests that
 * depend on it have no agent in their process.
 */
const { runInNewContext } = vm
vm.runInNewContext = (code, ...rest: unknown[]) =>
  code === 'gc' ? () => undefined : Reflect.apply(runInNewContext, vm, [code, ...rest])
syncBuiltinESMExports()

/** The original value of each variable and the number of agents that use it. */
const lent = new Map<string, { readonly before: string | undefined; agents: number }>()

/**
 * Sets environment variables of this process. The returned function restores them once the last agent that uses them has
 * stopped.
 */
function lendVariables(env: Readonly<Record<string, string>>): () => void {
  for (const [name, value] of Object.entries(env)) {
    const entry = lent.get(name) ?? { before: process.env[name], agents: 0 }
    entry.agents++
    lent.set(name, entry)
    process.env[name] = value
  }
  let names = Object.keys(env)
  return () => {
    for (const name of names) {
      const entry = lent.get(name)
      if (!entry || --entry.agents > 0) continue
      lent.delete(name)
      if (entry.before === undefined) delete process.env[name]
      else process.env[name] = entry.before
    }
    names = []
  }
}

/** `args` are those of `outpost agent`. Rejects with the error message of a process that fails to start. */
export async function agentHere(
  t: Pick<TestContext, 'after'>,
  args: readonly string[],
  { env = {} }: { readonly env?: Readonly<Record<string, string>> } = {},
): Promise<AgentHere> {
  const folder = mkdtempSync(join(tmpdir(), 'outpost-here-'))
  const log = join(folder, 'log')
  const config = join(folder, 'log.hcl')
  writeFileSync(config, `log_file = "${log}"\n`)
  const giveBack = lendVariables(env)
  let [said, faults] = ['', '']
  const held: { agent?: Running } = {}
  const stop = async () => {
    const { agent } = held
    delete held.agent
    try {
      await agent?.stop()
    } finally {
      giveBack()
    }
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
  const printing = { take: io.out, isStarting: true }
  const start = async () => {
    const { startAgent } = await import('../../src/daemon/start-agent.ts')
    await runCommand(['agent', ...args, '-config', config], io, {
      async startAgent(options) {
        held.agent = await startAgent(options, programVersion())
        return 0
      },
    })
  }
  // Later output is forwarded to the test output.
  await printed.run(printing, start).finally(() => (printing.isStarting = false))
  if (!held.agent) {
    giveBack()
    throw new Error(`the agent exited: ${faults}`)
  }
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
