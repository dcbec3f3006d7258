/**
 * A process that changes a seal and is killed in between. Arguments: the database, what to do, the step at which it kills
 * itself (0: never), and the shares it may use, in hex. Each commit has three steps: it is about to be queued, it is
 * queued, it is durable. What was answered is said on stdout, a line of JSON each.
 */
import { writeSync } from 'node:fs'
import { Barrier } from '../../src/barrier/barrier.ts'
import { Rekey } from '../../src/barrier/seal-rekey.ts'
import type { SealSettings } from '../../src/barrier/seal-static.ts'
import { Seal } from '../../src/barrier/seal.ts'
import { SqliteStore } from '../../src/store/store.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { asking, FIRST, machineKey, SHAMIR } from './seal-world.ts'

const [path = '', task = '', killAt = '0', ...shares] = process.argv.slice(2)
let step = 0

function passed(): void {
  if (++step === Number(killAt)) process.kill(process.pid, 'SIGKILL')
}

function answered(what: Readonly<Record<string, unknown>>): void {
  writeSync(1, `${JSON.stringify(what)}\n`)
}

const real = await SqliteStore.open(path)
const store = steppedStore(real, passed)

function given(): Buffer[] {
  return shares.map((share) => Buffer.from(share, 'hex'))
}

async function opened(settings: SealSettings = SHAMIR, migrate = false) {
  const barrier = new Barrier(store)
  const seal = new Seal(store, barrier, settings, { answeredMs: 1 })
  for (const share of given()) await seal.unseal(share, migrate)
  return { barrier, seal }
}

async function rekey(requireVerification: boolean, barrier: Barrier, seal: Seal, from: readonly Buffer[]) {
  const attempt = new Rekey(seal, barrier, 'unseal')
  const asked = { shares: 3, threshold: 2, pgpKeys: [], backup: false, requireVerification }
  const { nonce } = await attempt.start(asked)
  for (const share of from) {
    const outcome = await attempt.update(Buffer.from(share), nonce)
    if (!('keys' in outcome)) continue
    answered({ given: outcome.keys.map((key) => key.toString('hex')) })
    if (!requireVerification) return outcome.keys
    for (const key of outcome.keys.slice(0, 2)) await attempt.verify(Buffer.from(key), outcome.verificationNonce)
    answered({ verified: true })
    return outcome.keys
  }
  throw new Error('too few shares')
}

/** The shares before a rekey end a moment after its answer. */
async function settled(): Promise<void> {
  while (real.get('core/root-key-before')) await new Promise((resolve) => setTimeout(resolve, 1))
}

const TASKS: Readonly<Record<string, () => Promise<unknown>>> = {
  async init() {
    const seal = new Seal(store, new Barrier(store), SHAMIR)
    await seal.initialise(asking(1, 1), FIRST, given()[0])
    answered({ made: true })
  },
  async rekey() {
    const { barrier, seal } = await opened()
    await rekey(false, barrier, seal, given())
    await settled()
  },
  async 'rekey verified'() {
    const { barrier, seal } = await opened()
    await rekey(true, barrier, seal, given())
  },
  async rotate() {
    const { barrier } = await opened()
    await barrier.rotate()
    await barrier.commit({ puts: [{ path: 'sys/second', value: Buffer.from('second entry') }], deletes: [] })
    answered({ written: true })
  },
  async 'to static'() {
    await opened(machineKey('key-1'), true)
    answered({ moved: true })
  },
  async 'other machine key'() {
    const both: SealSettings = { ...machineKey('key-2'), previous: machineKey('key-1').current }
    await new Seal(store, new Barrier(store), both).openUnattended()
    answered({ moved: true })
  },
  async 'to shamir'() {
    await opened({ ...machineKey('key-1'), disabled: true }, true)
    answered({ moved: true })
  },
  /** Until it is killed from outside. */
  async everything() {
    const { barrier, seal } = await opened()
    let keys: readonly Buffer[] = given()
    for (let at = 0; ; at++) {
      keys = await rekey(at % 3 === 2, barrier, seal, keys.slice(0, 2))
      if (at % 4 === 1) await barrier.rotate()
      await barrier.commit({ puts: [{ path: 'sys/count', value: Buffer.from(String(at)) }], deletes: [] })
      answered({ count: at })
    }
  },
}
await TASKS[task]?.()
answered({ steps: step })
process.exit(0)
