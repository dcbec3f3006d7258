/**
 * Changes of a seal for seal-crash.test.ts: in its own process, where each step is copied, and in processes that are killed. Responses are
 * JSON values.
 */
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { Rekey } from '../../../src/storage/seal/rekey.ts'
import type { SealSettings } from '../../../src/storage/seal/static-key.ts'
import { Seal } from '../../../src/storage/seal/seal.ts'
import type { Store } from '../../../src/storage/store/store.ts'
import { asking, FIRST, machineKey, SHAMIR } from '../barrier/seal-world.ts'

export interface Said {
  readonly made?: true
  readonly given?: readonly string[]
  readonly verified?: true
  readonly written?: true
  readonly moved?: true
  readonly count?: number
  /** The change has come to its end. */
  readonly over?: true
}

export interface SealChange {
  readonly store: Store
  /** Shares that the change may use, in hex. */
  readonly shares: readonly string[]
  readonly answered: (said: Said) => void
}

function given({ shares }: SealChange): Buffer[] {
  return shares.map((share) => Buffer.from(share, 'hex'))
}

async function opened(change: SealChange, settings: SealSettings = SHAMIR, migrate = false) {
  const barrier = new Barrier(change.store)
  const seal = new Seal(change.store, barrier, settings, { responseMs: 1 })
  for (const share of given(change)) await seal.unseal(share, migrate)
  return { barrier, seal }
}

interface RekeyTask {
  readonly barrier: Barrier
  readonly seal: Seal
  readonly from: readonly Buffer[]
  readonly requireVerification: boolean
}

async function rekey({ answered }: SealChange, { barrier, seal, from, requireVerification }: RekeyTask) {
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
async function settled({ store }: SealChange): Promise<void> {
  while (store.get('core/root-key-before')) await new Promise((resolve) => setTimeout(resolve, 1))
}

const CHANGES: Readonly<Record<string, (change: SealChange) => Promise<unknown>>> = {
  async init(change) {
    const seal = new Seal(change.store, new Barrier(change.store), SHAMIR)
    await seal.initialise(asking(1, 1), FIRST, given(change)[0])
    change.answered({ made: true })
  },
  async rekey(change) {
    await rekey(change, { ...(await opened(change)), from: given(change), requireVerification: false })
    await settled(change)
  },
  async 'rekey verified'(change) {
    await rekey(change, { ...(await opened(change)), from: given(change), requireVerification: true })
  },
  async rotate(change) {
    const { barrier } = await opened(change)
    await barrier.rotate()
    await barrier.commit({ puts: [{ path: 'sys/second', value: Buffer.from('second entry') }], deletes: [] })
    change.answered({ written: true })
  },
  async 'to static'(change) {
    await opened(change, machineKey('key-1'), true)
    change.answered({ moved: true })
  },
  async 'other machine key'(change) {
    const both: SealSettings = { ...machineKey('key-2'), previous: machineKey('key-1').current }
    await new Seal(change.store, new Barrier(change.store), both).autoUnseal()
    change.answered({ moved: true })
  },
  async 'to shamir'(change) {
    await opened(change, { ...machineKey('key-1'), disabled: true }, true)
    change.answered({ moved: true })
  },
  /** Until it is killed from outside. */
  async everything(change) {
    const { barrier, seal } = await opened(change)
    let keys: readonly Buffer[] = given(change)
    for (let at = 0; ; at++) {
      const task = { barrier, seal, from: keys.slice(0, 2), requireVerification: at % 3 === 2 }
      keys = await rekey(change, task)
      if (at % 4 === 1) await barrier.rotate()
      await barrier.commit({ puts: [{ path: 'sys/count', value: Buffer.from(String(at)) }], deletes: [] })
      change.answered({ count: at })
    }
  },
}

/** Goes through the change of this name to its end. */
export async function changeSeal(name: string, change: SealChange): Promise<void> {
  const run = CHANGES[name]
  if (!run) throw new Error(`no change of a seal is called ${name}`)
  await run(change)
}
