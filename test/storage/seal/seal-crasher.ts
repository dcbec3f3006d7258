/**
 * A process that changes a seal and is killed in between. Arguments: the database, the change, the step at which it kills itself (0: never),
 * and the shares it may use, in hex. Each commit has three steps: before it is queued, queued, durable. Responses are lines of JSON on
 * standard output.
 */
import { writeSync } from 'node:fs'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { steppedStore } from '../../helpers/stepped-store.ts'
import { changeSeal, type Said } from './seal-changes.ts'

const [path = '', name = '', killAt = '0', ...shares] = process.argv.slice(2)
let step = 0

function passed(): void {
  if (++step === Number(killAt)) process.kill(process.pid, 'SIGKILL')
}

function answered(said: Said): void {
  writeSync(1, `${JSON.stringify(said)}\n`)
}

const store = steppedStore(await SqliteStore.open(path), passed)
await changeSeal(name, { store, shares, answered })
answered({ over: true })
process.exit(0)
