/**
 * A process that gives out leases and wrapped answers, with an audit device, and kills itself at a step of its commits.
 * Arguments: the directory of a world, its unseal key in hex, its root token, the step. Started by issued-crash.test.ts.
 */
import { writeSync } from 'node:fs'
import type { Store } from '../../src/store/store.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { lender } from '../helpers/lender-engine.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { issueAndTakeBack } from './issued-steps.ts'

const [directory = '', unsealKey = '', rootToken = '', killAt = ''] = process.argv.slice(2)
let isCounting = false
let step = 0

function passed(): void {
  if (isCounting && ++step === Number(killAt)) process.kill(process.pid, 'SIGKILL')
}

const wrap = (real: Store) => steppedStore(real, passed)
const world = await CoreWorld.reopen(directory, { unsealKey, rootToken }, { engines: [lender().engine], wrap })
isCounting = true
await issueAndTakeBack(world, (said) => writeSync(1, `${JSON.stringify(said)}\n`))
