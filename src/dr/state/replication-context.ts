/** What the daemon provides to the module: store, settings, timings, keys as functions, and callbacks for role transitions. */
import type { Logger } from '../../platform/log.ts'
import type { ReplicaStore } from '../../storage/store/replica.ts'

export interface ReplicationSettings {
  /** Commits of a primary wait for acknowledgement by its secondaries. */
  readonly sync: boolean
  /** Then commits no longer wait, and the state is `degraded`. */
  readonly syncTimeoutMs: number
  /** A primary that has received no message from any secondary for this time accepts no writes; 0 disables this. */
  readonly fenceAfterMs: number
  /** Unacknowledged rows and bytes per secondary. */
  readonly bufferLength: number
  readonly bufferBytes: number
  /** Bytes per second to all secondaries together; 0: no limit. */
  readonly bandwidthBytes: number
}

export interface LinkTimings {
  /** Heartbeat interval. */
  readonly heartbeatMs: number
  /** A connection without a message for this time is closed; a multiple of `heartbeatMs`. */
  readonly silenceMs: number
  /** Timeout of a connection attempt and of a call. */
  readonly answerMs: number
  readonly retryMinMs: number
  readonly retryMaxMs: number
  /** How long a starting primary waits for secondaries that know a newer primary. */
  readonly startMs: number
  /** How much longer a secondary may take before it is reported: both servers may start at once. */
  readonly graceMs: number
  /** Batching delay of rows while no commit waits for the secondary. */
  readonly gatherMs: number
  /** Interval of a secondary's check of all its entries. */
  readonly compareMs: number
  /** How long a demotion waits until the chosen secondary has the last commits. */
  readonly handoverMs: number
}

export const TIMINGS: LinkTimings = {
  heartbeatMs: 1000,
  silenceMs: 5000,
  answerMs: 10_000,
  retryMinMs: 200,
  retryMaxMs: 2000,
  startMs: 5000,
  graceMs: 30_000,
  gatherMs: 4,
  compareMs: 3600_000,
  handoverMs: 15_000,
}

/** Called at changes of role, in order; the daemon closes and opens the barrier and the core. */
export interface RoleTransitions {
  /** Before the store becomes a replica: stops writes and keeps the root key. */
  toSecondary(): Promise<void>
  /** The data was wiped: caches of it must be dropped. */
  wiped(): Promise<void>
  /** Before a promotion, without changes: rejects with a Refusal if the entries could not be served. */
  beforePrimary(): Promise<void>
  /** The store accepts commits again. */
  toPrimary(): Promise<void>
  /** The store refuses commits: another cluster is the primary. */
  fenced(): Promise<void>
}

/** Encryption for the key of the certificate authority. Both throw while the cluster is sealed. */
export interface AuthorityEncryption {
  protect(name: string, value: Uint8Array): Uint8Array
  reveal(name: string, value: Uint8Array): Buffer
}

/** Codes that only unsealed members of a replication set can compute, under a key of the barrier. */
export interface MembershipKey {
  readonly isSealed: boolean
  /** HMAC-SHA-256, 32 bytes; undefined while this cluster is sealed. */
  codeOf(text: string): Buffer | undefined
}

export interface AdvertisedAddresses {
  readonly api: string
  readonly cluster: string
  /** Cluster addresses of the other members of an HA cluster, any of which may serve the link later. */
  readonly others?: readonly string[]
}

export interface ReplicationContext {
  readonly store: ReplicaStore
  readonly logger: Logger
  readonly settings: ReplicationSettings
  readonly version: string
  readonly dataDir: string
  readonly listenAddress: { readonly host: string; readonly port: number }
  readonly addresses: () => AdvertisedAddresses
  readonly secrets: AuthorityEncryption
  readonly membership: MembershipKey
  readonly transition: RoleTransitions
  /**
   * This server is a member of an HA cluster, and this object lives as long as it is the active one. `follows`: another member was active
   * until a few seconds ago, so a start does not wait for the secondaries.
   */
  readonly member?: { readonly follows: boolean }
  readonly now?: () => number
  readonly timings?: Partial<LinkTimings>
}
