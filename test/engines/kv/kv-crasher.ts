/**
 * A process with versioned secrets, to be killed: each line of its input is a request, each of its output an answer. The
 * first line of its output, the keys, says that it is ready. Its arguments are a directory, the time, and the keys where
 * there is a core in the directory already. After a request `DIE` it kills itself where the store has come to the step of
 * its commits (about to be queued, queued, durable) that is the path of the request.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { kv } from '../../../src/engines/kv/kv.ts'
import type { Store } from '../../../src/storage/store/store.ts'
import { CoreWorld, type WorldKeys } from '../../helpers/core-world.ts'
import { addKv } from '../../helpers/kv-world.ts'
import { steppedStore } from '../../helpers/stepped-store.ts'

export interface CrasherRequest {
  readonly id: number
  readonly nowMs: number
  readonly method: string
  readonly path: string
  readonly body?: unknown
}

let stepsLeft = Number.POSITIVE_INFINITY

function step(): void {
  if (--stepsLeft === 0) process.kill(process.pid, 'SIGKILL')
}

async function world(): Promise<CoreWorld> {
  const [directory = '', nowMs, keys] = process.argv.slice(2)
  const options = { engines: [kv], nowMs: Number(nowMs), wrap: (store: Store) => steppedStore(store, step) }
  if (keys !== undefined && existsSync(join(directory, 'secrets.db'))) {
    return CoreWorld.reopen(directory, JSON.parse(keys) as WorldKeys, options)
  }
  const made = await CoreWorld.create(directory, options)
  await addKv(made)
  return made
}

/** Number of all entries of a mount. */
function entriesOf(path: string): number {
  const view = opened.core.open.mounts.get(path)?.storage
  const below = (prefix: string): number =>
    (view?.list(prefix) ?? []).reduce((sum, name) => sum + (name.endsWith('/') ? below(prefix + name) : 1), 0)
  return below('')
}

const opened = await world()
process.stdout.write(`${JSON.stringify(opened.keys)}\n`)
createInterface({ input: process.stdin }).on('line', (line) => {
  const { body, id, method, nowMs, path } = JSON.parse(line) as CrasherRequest
  opened.nowMs = Math.max(opened.nowMs, nowMs)
  if (method === 'ENTRIES') {
    process.stdout.write(`${JSON.stringify({ id, status: 200, text: String(entriesOf(path)) })}\n`)
    return
  }
  if (method === 'DIE') {
    stepsLeft = Number(path)
    return
  }
  void (async () => {
    const { status, text } = await opened.ask(method, path, body)
    process.stdout.write(`${JSON.stringify({ id, status, text })}\n`)
  })()
})
