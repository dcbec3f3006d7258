/** A process that applies rows of a primary to a replica and reports its position, until it is killed. */
import { writeSync } from 'node:fs'
import { SqliteStore } from '../../../src/storage/store/store.ts'

const [from = '', to = ''] = process.argv.slice(2)
const primary = await SqliteStore.open(from)
const replica = await SqliteStore.open(to)
for (;;) {
  const rows = primary.rowsAfter(replica.position().sequence, { rows: 3, bytes: 1 << 20 })
  if (rows.length === 0) break
  const { sequence } = await replica.applyRows(rows)
  writeSync(1, `${sequence}\n`)
}
