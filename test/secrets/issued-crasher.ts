/**
 * A process that issues leases, wrapped answers or tokens, with an audit device, and kills itself at a step of its commits.
 * Arguments: the directory of a world, its unseal key in hex, its root token, the step. Started by issued-crash.test.ts with the
 * name of a scenario, it also tells each answer; by ended-crash.test.ts with what it has prepared, as JSON, and the time: then it ends leases and merges
 * entities.
 */
import { writeSync } from 'node:fs'
import type { Store } from '../../src/storage/store/store.ts'
import { type CoreAnswer, CoreWorld } from '../helpers/core-world.ts'
import { leaseTestEngine } from '../helpers/lease-test-engine.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { answeredAs } from './crash-scenario.ts'
import { endAll, type Prepared } from './ended-steps.ts'
import { issued } from './issued-steps.ts'
import { logins } from './login-steps.ts'

const [directory = '', unsealKey = '', rootToken = '', killAt = '', work = '', nowMs = ''] = process.argv.slice(2)
const scenario = { issued, logins }[work]
let isCounting = false
let step = 0

function passed(): void {
  if (isCounting && ++step === Number(killAt)) process.kill(process.pid, 'SIGKILL')
}

const wrap = (real: Store) => steppedStore(real, passed)
const engines = scenario?.engines() ?? [leaseTestEngine().engine]
const tell = (said: object) => void writeSync(1, `${JSON.stringify(said)}\n`)
const answered = scenario && ((id: string, answer: CoreAnswer) => isCounting && tell(answeredAs(id, answer)))
const options = { engines, wrap, ...(answered && { answered }), ...(nowMs !== '' && { nowMs: Number(nowMs) }) }
const world = await CoreWorld.reopen(directory, { unsealKey, rootToken }, options)
isCounting = true
if (scenario) await scenario.run(world, tell)
else await endAll(world, JSON.parse(work) as Prepared, tell)
