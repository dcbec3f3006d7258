/**
 * What this cluster knows of its replication: one entry below `local/replication/`, which is read while the core is sealed, is in
 * no snapshot, and no secondary gets it. Keys of the link are in it as they are, but for the authority's, which only an open primary
 * can use (`protect`).
 */
import * as v from 'valibot'
import { Fault } from '../../platform/errors.ts'
import type { ReplicaStore } from '../../storage/store/replica.ts'

export const STATE_PATH = 'local/replication/state'

const bytes = v.pipe(
  v.string(),
  v.transform((text): Uint8Array => Buffer.from(text, 'base64')),
)
const position = v.object({ sequence: v.number(), epoch: v.number(), checksum: bytes })
const addresses = v.array(v.string())

const SECONDARY = v.object({
  id: v.string(),
  /** `pending` until it joins for the first time. */
  status: v.picklist(['pending', 'active']),
  /** Of its certificate. */
  fingerprint: v.string(),
  nonce: v.string(),
  expiresAtMs: v.number(),
  api: v.string(),
  cluster: v.string(),
  /** Up to here it has the log, as it said last. */
  acknowledged: v.optional(v.number()),
  /** By the clock of this primary: when it last had everything. Saved once a minute, and when it disconnects. */
  caughtUpAtMs: v.optional(v.number()),
  /** Its first copy is whole: synchronous commits wait for it. */
  wasWhole: v.boolean(),
})

const UPSTREAM = v.object({
  setId: v.string(),
  id: v.string(),
  nonce: v.string(),
  authority: v.string(),
  certificate: v.string(),
  key: v.string(),
  /** Handed over with the activation. */
  address: v.string(),
  /** Set by `update_primary_addrs`, or told by the primary. */
  known: addresses,
  api: v.string(),
  /** The primary has taken this certificate. */
  hasJoined: v.boolean(),
})

const STATE = v.object({
  version: v.literal(1),
  mode: v.picklist(['disabled', 'primary', 'secondary']),
  /** ID of the replication set; kept by promotion and demotion. */
  setId: v.string(),
  /** As it was given to `enable` or `promote`: handed to secondaries in the place of our own. */
  primaryClusterAddr: v.string(),
  authority: v.optional(
    v.object({ certificate: v.string(), protectedKey: bytes, serverCertificate: v.string(), serverKey: v.string() }),
  ),
  secondaries: v.array(SECONDARY),
  /** Fingerprints of certificates that were revoked: their holders are told so. */
  revoked: v.array(v.string()),
  upstream: v.optional(UPSTREAM),
  /** The secondary gives up what it holds: to be done again when it was cut short. */
  isWipeDue: v.boolean(),
  /** The epoch of a promotion that has begun: finished when the cluster is next unsealed where a crash cut it short. */
  promoting: v.optional(v.number()),
  /** The highest epoch that this cluster may prove to a peer (`role-code.ts`); 0 where absent. */
  provenEpoch: v.optional(v.number()),
  /** Of the role, under the membership key (`role-code.ts`). Absent in states of earlier versions and before the first unseal. */
  code: v.optional(bytes),
  /** In which the primary stopped taking writes because it had heard from no secondary (`fence_after`). */
  witnessEpoch: v.optional(v.number()),
  /** The epoch in which a fence ends whose secondary was revoked: finished at the next start when it was cut short. */
  resumeEpoch: v.optional(v.number()),
  /** Newly demoted: its next primary is named by a token, not by addresses. */
  needsToken: v.boolean(),
  /** Where each epoch of this history began, oldest first. */
  forks: v.array(position),
  /** A promoted cluster owes this notice to the primary that it replaced. */
  notice: v.optional(v.object({ upstream: UPSTREAM, epoch: v.number(), fork: position })),
  /** The newer primary, as it said. */
  deposed: v.optional(
    v.object({
      epoch: v.number(),
      addresses,
      api: v.string(),
      /** ID of the secondary whose notice it was; unknown where a peer was the first to show the epoch. */
      heir: v.optional(v.string()),
      /** ID of the secondary whose proof it was: revoking that one ends the fence. */
      provenBy: v.optional(v.string()),
    }),
  ),
  /**
   * Of two secondaries that were promoted in the same epoch this one gave way to the other: commits behind this sequence are its
   * own, and the numbers of epochs do not tell that. Until they are in a conflict report.
   */
  ownSince: v.optional(v.number()),
  /** PKCS 8 of the key that tokens may be sealed to. */
  sealingKey: v.optional(bytes),
  conflicts: v.array(v.string()),
  lastReindexMs: v.number(),
  lastCheckMs: v.optional(v.number()),
  isTreeCorrupted: v.boolean(),
})

export type State = v.InferOutput<typeof STATE>
export type KnownSecondary = State['secondaries'][number]
export type KnownUpstream = NonNullable<State['upstream']>

const NEW: State = {
  version: 1,
  mode: 'disabled',
  setId: '',
  primaryClusterAddr: '',
  secondaries: [],
  revoked: [],
  isWipeDue: false,
  needsToken: false,
  forks: [],
  conflicts: [],
  lastReindexMs: 0,
  isTreeCorrupted: false,
}

/** The code that is written with a state. `now`: the one that `next` replaces. */
export type CodeFor = (next: State, now: State) => Uint8Array | undefined

export class ReplicationState {
  readonly #store: ReplicaStore
  readonly #codeFor: CodeFor
  #now: State
  #saving: Promise<unknown> = Promise.resolve()

  /** Throws a Fault for one that is damaged. */
  constructor(store: ReplicaStore, codeFor: CodeFor = () => undefined) {
    this.#store = store
    this.#codeFor = codeFor
    this.#now = stateIn(store)
  }

  get now(): State {
    return this.#now
  }

  /** Resolves when it is durable, one change behind the other; a change that fails has changed nothing. */
  change(make: (now: State) => Partial<State>): Promise<void> {
    const change = async () => {
      const changed = { ...this.#now, ...make(this.#now) }
      const next = { ...changed, code: this.#codeFor(changed, this.#now) }
      await this.#store.commit({ puts: [{ path: STATE_PATH, value: Buffer.from(textOf(next)) }], deletes: [] })
      this.#now = next
    }
    const changed = this.#saving.then(change)
    this.#saving = changed.catch(() => undefined)
    return changed
  }
}

/** No replication. */
export const NO_REPLICATION = {
  ...NEW,
  authority: undefined,
  upstream: undefined,
  notice: undefined,
  deposed: undefined,
  ownSince: undefined,
  promoting: undefined,
  provenEpoch: undefined,
  code: undefined,
  witnessEpoch: undefined,
  resumeEpoch: undefined,
  sealingKey: undefined,
}

/** What a primary loses when it becomes a secondary. */
export const NO_LONGER_PRIMARY: Partial<State> = {
  authority: undefined,
  secondaries: [],
  deposed: undefined,
  notice: undefined,
  witnessEpoch: undefined,
  resumeEpoch: undefined,
}

/** PEM of the certificates that this cluster uses on the link; empty without replication. */
export function certificatesIn(store: ReplicaStore): string[] {
  const { authority, upstream } = stateIn(store)
  const texts = [authority?.serverCertificate, authority?.certificate, upstream?.certificate]
  return texts.filter((text) => text !== undefined)
}

function stateIn(store: ReplicaStore): State {
  const entry = store.get(STATE_PATH)
  if (!entry) return NEW
  try {
    return v.parse(STATE, JSON.parse(Buffer.from(entry.value).toString('utf8')))
  } catch (error) {
    throw new Fault(`the state of replication (${STATE_PATH}) is damaged, or of a newer version`, { cause: error })
  }
}

function textOf(state: State): string {
  return JSON.stringify(state, function (this: Record<string, unknown>, key, value: unknown) {
    // Buffers have turned into something else by the time `value` is made of them.
    const held = this[key]
    return held instanceof Uint8Array ? Buffer.from(held).toString('base64') : value
  })
}

/** True if the replaced primary has this cluster address: once it follows with a proof, it needs no notice. */
export function isOwedTo(notice: State['notice'], clusterAddress: string): boolean {
  if (!notice) return false
  return [notice.upstream.address, ...notice.upstream.known].includes(clusterAddress)
}
