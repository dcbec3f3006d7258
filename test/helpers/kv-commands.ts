/** A core with versioned secrets behind a real listener, and the commands of the program against it. */
import type { TestContext } from 'node:test'
import { OUTPOST, type Running, start } from '../cli/outpost-process.ts'
import { workDirectory } from './agent-process.ts'
import { runHere, runsHere } from './command-here.ts'
import { listenTo } from './core-listener.ts'
import type { CoreWorld } from './core-world.ts'
import { openKv } from './kv-world.ts'

export interface KvCommands {
  readonly world: CoreWorld
  readonly port: number
  readonly directory: string
  /** Starts `outpost kv …`; `token` is the root token by default, `at` another address. */
  readonly begin: (line: string, options?: { input?: string; token?: string; at?: string }) => Running
  /** In this process if the effect is the same. */
  readonly run: (line: string, options?: { input?: string; token?: string }) => Running['finished']
}

const argsOf = (line: string) => ['kv', ...line.split(' ')]

export async function kvCommands(t: TestContext, version: '1' | '2' = '2'): Promise<KvCommands> {
  const world = await openKv(t, version)
  const port = await listenTo(t, world)
  const directory = workDirectory(t)
  const environment = (at = `http://127.0.0.1:${port}`, token = world.rootToken) => {
    return { ...process.env, OUTPOST_ADDR: at, OUTPOST_TOKEN: token, HOME: directory, OUTPOST_FORMAT: '' }
  }
  const begin: KvCommands['begin'] = (line, { at, input = '', token } = {}) =>
    start(OUTPOST, argsOf(line), { env: environment(at, token), input })
  const run: KvCommands['run'] = async (line, options = {}) => {
    const { input = '', token } = options
    if (runsHere(argsOf(line))) return await runHere(argsOf(line), environment(undefined, token), input)
    return await begin(line, options).finished
  }
  return { world, port, directory, begin, run }
}
