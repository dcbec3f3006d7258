/**
 * A process with versioned secrets, to be killed: each line of its input is a request, each of its output an answer. The
 * first line of its output, the keys, says that it is ready. Its arguments are a directory, the time, and the keys where
 * there is a core in the directory already.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { kv } from '../../../src/engines/kv/kv.ts'
import { CoreWorld, type WorldKeys } from '../../helpers/core-world.ts'
import { addKv } from '../../helpers/kv-world.ts'

export interface CrasherRequest {
  readonly id: number
  readonly nowMs: number
  readonly method: string
  readonly path: string
  readonly body?: unknown
}

async function world(): Promise<CoreWorld> {
  const [directory = '', nowMs, keys] = process.argv.slice(2)
  const options = { engines: [kv], nowMs: Number(nowMs) }
  if (keys !== undefined && existsSync(join(directory, 'secrets.db'))) {
    return CoreWorld.reopen(directory, JSON.parse(keys) as WorldKeys, options)
  }
  const made = await CoreWorld.create(directory, options)
  await addKv(made)
  return made
}

const opened = await world()
process.stdout.write(`${JSON.stringify(opened.keys)}\n`)
createInterface({ input: process.stdin }).on('line', (line) => {
  const { body, id, method, nowMs, path } = JSON.parse(line) as CrasherRequest
  opened.nowMs = Math.max(opened.nowMs, nowMs)
  void (async () => {
    const { status, text } = await opened.ask(method, path, body)
    process.stdout.write(`${JSON.stringify({ id, status, text })}\n`)
  })()
})
