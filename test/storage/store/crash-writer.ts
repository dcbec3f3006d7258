/** A process that commits and reports each acknowledged commit, until it is killed. */
import { writeSync } from 'node:fs'
import { SqliteStore } from '../../../src/storage/store/store.ts'

const [path = '', writers = '8', run = '0'] = process.argv.slice(2)
const store = await SqliteStore.open(path)

async function write(writer: number): Promise<void> {
  for (let at = 0; ; at++) {
    const value = Buffer.from(`${run} ${writer} ${at} `.padEnd(100 + ((at * 37) % 2000), '.'))
    // Two entries in one batch must never differ.
    const puts = [
      { path: `w${writer}/a`, value },
      { path: `w${writer}/b`, value },
      { path: `w${writer}/${run}/${at}`, value },
    ]
    await store.commit({ puts, deletes: at % 3 === 2 ? [`w${writer}/${run}/${at - 2}`] : [] })
    writeSync(1, `${writer} ${at}\n`)
  }
}
await Promise.all(Array.from({ length: Number(writers) }, (_, writer) => write(writer)))
