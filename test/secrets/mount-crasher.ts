/**
 * A process that lives through a mount's life and kills itself at a step of its commits (about to be queued, queued,
 * durable). Arguments: the directory of a world, its unseal key in hex, its root token, the step. Started by mount-crash.test.ts.
 */
import { writeSync } from 'node:fs'
import type { Store } from '../../src/storage/store/store.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { MountTestEngine } from '../helpers/mount-test-engine.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { liveAMount } from './mount-steps.ts'

const [directory = '', unsealKey = '', rootToken = '', killAt = ''] = process.argv.slice(2)
let isCounting = false
let step = 0

function passed(): void {
  if (isCounting && ++step === Number(killAt)) process.kill(process.pid, 'SIGKILL')
}

const wrap = (real: Store) => steppedStore(real, passed)
const world = await CoreWorld.reopen(
  directory,
  { unsealKey, rootToken },
  { engines: [new MountTestEngine().engine], wrap },
)
isCounting = true
await liveAMount(world, (said) => writeSync(1, `${said}\n`))
