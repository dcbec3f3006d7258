/**
 * A process that enables, fills, tunes, moves and disables a mount, says so after each answer, and kills itself with the
 * commit of a number: as it is queued, or once it is durable. Started by mount-crash.test.ts.
 */
import { writeSync } from 'node:fs'
import { CoreWorld } from '../helpers/core-world.ts'
import { Shelf } from '../helpers/shelf-engine.ts'
import { ENTRIES, type Said } from './mount-steps.ts'

const [directory = '', unsealKey = '', rootToken = '', at = '', when = ''] = process.argv.slice(2)
const world = await CoreWorld.reopen(directory, { unsealKey, rootToken }, { engines: [new Shelf().engine] })
const { store } = world

const commit = store.commit.bind(store)
let count = 0
store.commit = async (batch) => {
  const isLast = ++count === Number(at)
  const committed = commit(batch)
  if (isLast && when === 'queued') process.kill(process.pid, 'SIGKILL')
  const sequence = await committed
  if (isLast) process.kill(process.pid, 'SIGKILL')
  return sequence
}

function say(said: Said): void {
  writeSync(1, `${JSON.stringify(said)}\n`)
}

async function ask(method: string, path: string, body?: unknown): Promise<void> {
  const { status, text } = await world.ask(method, path, body)
  if (status >= 300) throw new Error(`${method} ${path}: ${status} ${text}`)
}

await ask('POST', 'sys/mounts/a', { type: 'shelf' })
const uuid = world.core.open.mounts.get('a/')?.record.uuid ?? ''
say({ step: 'enabled' })
const puts = Array.from({ length: ENTRIES }, (_, n) => ({ path: `logical/${uuid}/e${n}`, value: Buffer.from(`${n}`) }))
await world.core.barrier.commit({ puts, deletes: [] })
say({ step: 'filled' })
await ask('POST', 'sys/mounts/a/tune', { description: 'tuned' })
say({ step: 'tuned' })
await ask('POST', 'sys/remount', { from: 'a', to: 'b' })
say({ step: 'moved' })
await ask('DELETE', 'sys/mounts/b')
say({ step: 'disabled', commits: count })
await world.core.seal()
await store.close()
