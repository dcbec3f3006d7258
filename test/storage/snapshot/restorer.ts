/** A process that restores a snapshot into a database, to be killed at any time. */
import { createReadStream, writeSync } from 'node:fs'
import { restoreSnapshot } from '../../../src/storage/snapshot/snapshot.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'

const [path = '', snapshot = ''] = process.argv.slice(2)
const store = await SqliteStore.open(path)
writeSync(1, 'begins\n')
await restoreSnapshot(store, createReadStream(snapshot))
writeSync(1, 'done\n')
await store.close()
