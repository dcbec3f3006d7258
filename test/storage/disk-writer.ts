/**
 * A process that writes through a barrier until its disk refuses a commit and reports `refused KIND`. After a line on standard input it
 * writes again and reports `recovered`, or what is wrong.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Barrier } from '../../src/storage/barrier/barrier.ts'
import { SqliteStore, StoreError } from '../../src/storage/store/store.ts'

const [path = ''] = process.argv.slice(2)
const store = await SqliteStore.open(path)
const barrier = new Barrier(store)
const rootKey = randomBytes(32)
await barrier.initialise(rootKey)
barrier.unseal(rootKey)
const put = (name: string, value: string) => ({ puts: [{ path: name, value: Buffer.from(value) }], deletes: [] })
await barrier.commit(put('kept', 'kept'))
writeSync(1, 'ready\n')
await once(process.stdin, 'data')

const acknowledged = new Map<string, string>()
let kind = ''
for (let at = 0; kind === ''; at++) {
  const value = String(at).padEnd(60_000, '.')
  // A rotation, a write behind it, and another that depends on that one: none of the three may survive without the others before it.
  const changes = [barrier.rotate(), barrier.commit(put(`big/${at}`, value)), barrier.commit(put('last', value))]
  const results = await Promise.allSettled(changes)
  const firstFailed = results.findIndex(({ status }) => status === 'rejected')
  if (firstFailed >= 0 && results.slice(firstFailed).some(({ status }) => status === 'fulfilled'))
    throw new Error('a later one survived')
  if (firstFailed < 0) acknowledged.set(`big/${at}`, value)
  for (const result of results)
    if (result.status === 'rejected' && result.reason instanceof StoreError) kind = result.reason.kind
  if (firstFailed >= 0) {
    if (barrier.get(`big/${at}`) && firstFailed < 2) throw new Error('what was refused is there')
    if (barrier.pending(`big/${at}`) && firstFailed < 2) throw new Error('what was refused is pending')
  }
}
if (barrier.get('kept')?.toString() !== 'kept') throw new Error('what was there is gone')
writeSync(1, `refused ${kind}\n`)
await once(process.stdin, 'data')
await barrier.rotate()
// The disk is looked at five times a second.
for (let isThere = false; !isThere; ) {
  isThere = await barrier.commit(put('after', 'after')).then(
    () => true,
    () => sleep(20, false),
  )
}
const fresh = new Barrier(store)
fresh.unseal(rootKey)
for (const [name, value] of [...acknowledged, ['kept', 'kept'], ['after', 'after']] as const) {
  if (fresh.get(name)?.toString() !== value) throw new Error(`${name} is not what was acknowledged`)
}
await store.close()
writeSync(1, 'recovered\n')
process.exit(0)
