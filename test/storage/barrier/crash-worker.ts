/** A process that runs operations on a barrier and reports each, until it is killed. */
import { writeSync } from 'node:fs'
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { COUNT_PATH, nextOperation, prefixOf, valueOf } from '../../helpers/crash-model.ts'
import { Random } from '../../helpers/frames.ts'

const [path = '', rootKey = '', workers = '64', run = '0'] = process.argv.slice(2)
const log = { bytesMax: 2 << 20, ageMaxMs: 3_600_000, behindBytesMax: 1 << 20 }
const store = await SqliteStore.open(path, { log })
const barrier = new Barrier(store, { encryptionsMax: 5000 })
barrier.unseal(Buffer.from(rootKey, 'hex'))

const say = (line: string) => writeSync(1, `${line}\n`)

async function work(worker: number): Promise<void> {
  const random = new Random(Number(run) * 1000 + worker)
  const paths = new Set(barrier.paths(prefixOf(worker)))
  for (let at = 0; ; at++) {
    const operation = nextOperation(random, worker, [...paths], `${run}.${at}`)
    say(`begin ${worker} ${JSON.stringify(operation)}`)
    const count = Number(barrier.pending(COUNT_PATH)?.toString() ?? 0) + 1
    const puts = [{ path: COUNT_PATH, value: Buffer.from(String(count)) }]
    const deletes: string[] = []
    for (const [name, bytes] of operation.writes) {
      if (bytes === null) deletes.push(name)
      else puts.push({ path: name, value: Buffer.from(valueOf(name, operation.tag, bytes)) })
    }
    await barrier.commit({ puts, deletes })
    say(`done ${worker}`)
    for (const name of deletes) paths.delete(name)
    for (const put of puts.slice(1)) paths.add(put.path)
    if (random.between(0, 60) === 0) await barrier.rotate()
    const found = random.between(0, 5) === 0 ? barrier.paths(prefixOf(worker)) : [...paths].sort()
    if (found.join() !== [...paths].sort().join()) say(`wrong worker ${worker} is told of other entries than it has`)
  }
}
await Promise.all(Array.from({ length: Number(workers) }, (_, worker) => work(worker)))
