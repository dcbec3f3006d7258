/**
 * A process that revokes a token and is killed in between. Arguments: the directory of a world, its unseal key in hex, the
 * token that asks, a path and a body, and the step at which it kills itself (0: never). Each commit has three steps: it is
 * about to be queued, it is queued, it is durable. What was answered is said on stdout.
 */
import { writeSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import type { Store } from '../../src/storage/store/store.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { steppedStore } from '../helpers/stepped-store.ts'

const [directory = '', key = '', token = '', path = '', body = '', killAt = '0'] = process.argv.slice(2)
let step = 0
let isCounting = false

function passed(): void {
  if (isCounting && ++step === Number(killAt)) process.kill(process.pid, 'SIGKILL')
}

const wrap = (real: Store) => steppedStore(real, passed)
const world = await CoreWorld.reopen(directory, { unsealKey: key, rootToken: token }, { wrap })
await world.core.open.tokenExpiry.tick()
isCounting = true
const { status } = await world.ask('POST', path, body)
writeSync(1, `${status}\n`)
while (world.core.barrier.paths('sys/token/revoking/').length > 0) await delay(1)
writeSync(1, `done ${step}\n`)
await world.close()
