/**
 * The replication state of this cluster: one entry below `local/replication/`. It is readable while the core is sealed, is in
 * no snapshot, and is not replicated. Keys of the link are stored unencrypted, except that of the certificate authority, which only
 * an unsealed primary can use (`protect`).
 */
import * as v from 'valibot'
import { Fault, Refusal } from '../../platform/errors.ts'
import { Mutex } from '../../platform/mutex.ts'
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
  /** Fingerprint of its certificate. */
  fingerprint: v.string(),
  nonce: v.string(),
  expiresAtMs: v.number(),
  api: v.string(),
  cluster: v.string(),
  /** Last acknowledged sequence. */
  acknowledged: v.optional(v.number()),
  /** Wall-clock time of this primary when it last had everything. Saved once a minute and at a disconnect. */
  caughtUpAtMs: v.optional(v.number()),
  /** It has completed its initial sync: synchronous commits wait for it. */
  wasWhole: v.boolean(),
})

const UPSTREAM = v.object({
  setId: v.string(),
  id: v.string(),
  nonce: v.string(),
  authority: v.string(),
  certificate: v.string(),
  key: v.string(),
  /** From the activation. */
  address: v.string(),
  /** Set by `update_primary_addrs` or announced by the primary. */
  known: addresses,
  api: v.string(),
  /** The primary has accepted this certificate. */
  hasJoined: v.boolean(),
})

const STATE = v.object({
  version: v.literal(1),
  mode: v.picklist(['disabled', 'primary', 'secondary']),
  /** ID of the replication set; kept by promotion and demotion. */
  setId: v.string(),
  /** Set by `enable` or `promote`: announced to secondaries instead of `addresses.cluster`. */
  primaryClusterAddr: v.string(),
  authority: v.optional(
    v.object({ certificate: v.string(), protectedKey: bytes, serverCertificate: v.string(), serverKey: v.string() }),
  ),
  secondaries: v.array(SECONDARY),
  /** Fingerprints of revoked certificates, for a precise error to their holders. */
  revoked: v.array(v.string()),
  upstream: v.optional(UPSTREAM),
  /** The secondary is wiping its data; repeated after a crash. */
  isWipeDue: v.boolean(),
  /** Epoch of a promotion that has begun; after a crash it is finished at the next unseal. */
  promoting: v.optional(v.number()),
  /** The highest epoch that this cluster may prove to a peer (`role-code.ts`); 0 where absent. */
  provenEpoch: v.optional(v.number()),
  /** Code of the role (`role-code.ts`). Absent in states of earlier versions and before the first unseal. */
  code: v.optional(bytes),
  /** Epoch in which the primary fenced itself because no secondary sent a message (`fence_after`). */
  witnessEpoch: v.optional(v.number()),
  /** Epoch in which a fence is lifted because its secondary was revoked; after a crash it is finished at the next start. */
  resumeEpoch: v.optional(v.number()),
  /** Demoted: only a token can set the next primary, not addresses. */
  needsToken: v.boolean(),
  /** Where each epoch of this history began, oldest first. */
  forks: v.array(position),
  /** Notice that the replaced primary has not acknowledged. */
  notice: v.optional(v.object({ upstream: UPSTREAM, epoch: v.number(), fork: position })),
  /** The newer primary, as announced. */
  deposed: v.optional(
    v.object({
      epoch: v.number(),
      addresses,
      api: v.string(),
      /** ID of the promoted secondary; undefined if another peer was the first to prove the epoch. */
      heir: v.optional(v.string()),
      /** ID of the secondary that proved it: revoking this one lifts the fence. */
      provenBy: v.optional(v.string()),
    }),
  ),
  /**
   * Two secondaries were promoted in the same epoch and this one yielded: commits behind this sequence are in its history only,
   * which the epoch numbers do not show. Cleared when they are in a conflict report.
   */
  ownSince: v.optional(v.number()),
  /** PKCS 8 of the newest key for sealed tokens. */
  sealingKey: v.optional(bytes),
  conflicts: v.array(v.string()),
  lastReindexMs: v.number(),
  lastCheckMs: v.optional(v.number()),
  isTreeCorrupted: v.boolean(),
})

export type ReplicationRecord = v.InferOutput<typeof STATE>
export type KnownSecondary = ReplicationRecord['secondaries'][number]
export type KnownUpstream = NonNullable<ReplicationRecord['upstream']>

const NEW: ReplicationRecord = {
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

/** Computes the code of the state `next`, which replaces `now`. */
export type RoleCodeFor = (next: ReplicationRecord, now: ReplicationRecord) => Uint8Array | undefined

export class ReplicationState {
  readonly #store: ReplicaStore
  readonly #codeFor: RoleCodeFor
  #now: ReplicationRecord
  readonly #changes = new Mutex()

  /** Throws a Fault for a damaged state. */
  constructor(store: ReplicaStore, codeFor: RoleCodeFor = () => undefined) {
    this.#store = store
    this.#codeFor = codeFor
    this.#now = recordIn(store)
  }

  get now(): ReplicationRecord {
    return this.#now
  }

  /** Changes are serialized. Resolves when the change is durable; a failed one changes nothing. */
  change(make: (now: ReplicationRecord) => Partial<ReplicationRecord>): Promise<void> {
    return this.#changes.runExclusive(async () => {
      const changed = { ...this.#now, ...make(this.#now) }
      const next = { ...changed, code: this.#codeFor(changed, this.#now) }
      await this.#store.commit({ puts: [{ path: STATE_PATH, value: Buffer.from(textOf(next)) }], deletes: [] })
      this.#now = next
    })
  }
}

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

/** Reset when a primary becomes a secondary. */
export const NO_LONGER_PRIMARY: Partial<ReplicationRecord> = {
  authority: undefined,
  secondaries: [],
  deposed: undefined,
  notice: undefined,
  witnessEpoch: undefined,
  resumeEpoch: undefined,
}

/** PEM of the certificates that this cluster uses on the link; empty without replication. */
export function certificatesIn(store: ReplicaStore): string[] {
  const { authority, upstream } = recordIn(store)
  const texts = [authority?.serverCertificate, authority?.certificate, upstream?.certificate]
  return texts.filter((text) => text !== undefined)
}

/** Throws a Fault for a damaged state. */
export function recordIn(store: Pick<ReplicaStore, 'get'>): ReplicationRecord {
  const entry = store.get(STATE_PATH)
  if (!entry) return NEW
  try {
    return v.parse(STATE, JSON.parse(Buffer.from(entry.value).toString('utf8')))
  } catch (error) {
    throw new Fault(`the replication state (${STATE_PATH}) is damaged or from a newer version`, { cause: error })
  }
}

function textOf(state: ReplicationRecord): string {
  return JSON.stringify(state, function (this: Record<string, unknown>, key, value: unknown) {
    // `value` of a Buffer is already the result of its `toJSON`.
    const held = this[key]
    return held instanceof Uint8Array ? Buffer.from(held).toString('base64') : value
  })
}

/** Whether the replaced primary has this cluster address: it needs no notice once it connects with a proof. */
export function isOwedTo(notice: ReplicationRecord['notice'], clusterAddress: string): boolean {
  if (!notice) return false
  return [notice.upstream.address, ...notice.upstream.known].includes(clusterAddress)
}

/** Throws a Refusal in another mode. */
export function requireMode(state: ReplicationRecord, mode: ReplicationRecord['mode']): void {
  if (state.mode === mode) return
  const texts = {
    disabled: 'DR replication is already enabled.',
    primary: 'Not a DR primary.',
    secondary: 'Not a DR secondary.',
  }
  throw new Refusal('invalid_request', `${texts[mode]} The mode of this cluster is "${state.mode}".`)
}
