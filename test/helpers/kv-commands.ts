/** A core with versioned secrets behind a real listener, and the program's own commands as processes against it. */
import type { TestContext } from 'node:test'
import { OUTPOST, type Running, start } from '../cli/outpost-process.ts'
import { workDirectory } from './agent-process.ts'
import { listenTo } from './core-listener.ts'
import type { CoreWorld } from './core-world.ts'
import { openKv } from './kv-world.ts'

export interface KvCommands {
  readonly world: CoreWorld
  readonly port: number
  readonly directory: string
  /** Begins `outpost kv …`; `token` is the root token unless given, `at` another address. */
  readonly begin: (line: string, options?: { input?: string; token?: string; at?: string }) => Running
  readonly run: (line: string, options?: { input?: string; token?: string }) => Running['finished']
}

export async function kvCommands(t: TestContext, version: '1' | '2' = '2'): Promise<KvCommands> {
  const world = await openKv(t, version)
  const port = await listenTo(t, world)
  const directory = workDirectory(t)
  const begin: KvCommands['begin'] = (line, { at = `http://127.0.0.1:${port}`, input = '', token } = {}) => {
    const given = { OUTPOST_ADDR: at, OUTPOST_TOKEN: token ?? world.rootToken, HOME: directory, OUTPOST_FORMAT: '' }
    return start(OUTPOST, ['kv', ...line.split(' ')], { env: { ...process.env, ...given }, input })
  }
  return { world, port, directory, begin, run: (line, options) => begin(line, options).finished }
}
