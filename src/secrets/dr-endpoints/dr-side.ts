/**
 * The interfaces between the endpoints of DR replication, the core and the module `dr`. That module knows no keys and no tokens,
 * this one no links; the daemon connects both (`daemon/modules/dr.ts`).
 */
import type { StandbyKey } from '../../storage/barrier/standby-key.ts'
import type { Seal } from '../../storage/seal/seal.ts'
import type { EngineCall } from '../../engines/framework/engine.ts'
import type { Logger } from '../../platform/log.ts'
import type { ResponseWrapping } from '../wrapping/wrapping.ts'

/** The part of the core that the endpoints of DR replication use. */
export interface DrCore {
  /** Throws a Refusal (503) while the core is not active. */
  readonly open: { readonly wrapping: ResponseWrapping }
  readonly options: {
    readonly seal: Seal
    readonly logger: Logger
    /** Absent if DR replication is not configured. */
    readonly replication?: ReplicationSide
  }
  readonly barrier: { readonly standby: StandbyKey }
  /** Milliseconds since 1970, by the clock for TTLs. */
  now(): number
}

/** Logs an operator event. Nonces of attempts are not secret; shares and tokens are. */
export type EventLog = (message: string, call: EngineCall, fields?: Readonly<Record<string, string | number>>) => void

export interface PgpKeyLimiter {
  /** Throws a Rejection (429) for too many requests of an address. */
  check(keys: readonly string[], call: EngineCall): void
}

export type ReplicationMode = 'disabled' | 'primary' | 'secondary'

export interface DrBrief {
  /** A `ReplicationMode`, or `bootstrapping` until the initial sync of a secondary is complete. */
  readonly mode: string
  /** Whether commits wait for secondaries: `off`, `on` or `degraded`. */
  readonly sync: string
}

export interface DrFence {
  readonly reason: 'replaced' | 'isolated'
  /** For people */
  readonly text: string
}

/** The data that activates a secondary. Only the module `dr` interprets its members. */
export type ActivationBundle = Readonly<Record<string, unknown>>

/** The state of DR replication and the operations on it. They reject with Refusals for the caller. */
export interface DrReplication {
  readonly mode: ReplicationMode
  /** For people; undefined if a secondary does not know the address of its primary. */
  readonly primaryAddress: string | undefined
  /** Set while this primary is fenced. Read for each request. */
  readonly fence: DrFence | undefined
  /** The part of `status` that is available synchronously. */
  readonly brief: DrBrief
  /** Reasons why secondaries on other hosts may not be able to connect to this primary; empty in other modes. */
  readonly warnings: readonly string[]
  /** The members of `sys/replication/dr/status`. */
  status(): Promise<Readonly<Record<string, unknown>>>
  enablePrimary(options: { readonly primaryClusterAddr: string }): Promise<void>
  /** With `secondaryId`, rejects unless that secondary has all commits. */
  demote(options: { readonly secondaryId: string }): Promise<void>
  /** For both roles. */
  disable(): Promise<void>
  /** Resolves with a bundle, or with a text that is sealed to the public key. */
  issueSecondary(options: {
    readonly id: string
    readonly ttlMs: number
    readonly publicKey?: string
  }): Promise<{ readonly bundle: ActivationBundle } | { readonly sealed: string }>
  revokeSecondary(id: string): Promise<void>
  generatePublicKey(): Promise<string>
  /** Opens a text that `issueSecondary` sealed to the public key of this server. */
  openSealedBundle(token: string): Promise<ActivationBundle>
  /** Throws a Refusal for a malformed bundle. */
  parseBundle(value: unknown): ActivationBundle
  enableSecondary(bundle: ActivationBundle): Promise<void>
  promote(options: { readonly primaryClusterAddr: string; readonly force: boolean }): Promise<void>
  updatePrimary(
    to: { readonly bundle: ActivationBundle } | { readonly addresses: readonly string[] } | { readonly forget: true },
  ): Promise<void>
  reindex(options: { readonly diff: boolean; readonly force: boolean; readonly skipFlush: boolean }): Promise<void>
  /** Resolves with the member `merkle_corruption_report`. */
  merkleCheck(): Promise<Readonly<Record<string, unknown>>>
}

/** The server that unwraps a wrapping token. */
export interface UnwrapTarget {
  /** URL without a path */
  readonly address: string
  readonly caFile: string
  readonly caPath: string
  /** PEM text */
  readonly caCert: string
}

export interface ReplicationSide {
  readonly dr: DrReplication
  /**
   * Called when the barrier is unsealed or its root key is held, before requests are served. Resolves when the role of this cluster
   * and the promotions reported while it was sealed are verified; a proven promotion makes the store read-only. Rejects with a
   * Refusal if another program has changed the role.
   */
  unsealed(): Promise<void>
  /** The entry of the operation token in the database. It is not replicated. */
  readonly operationToken: {
    read(): Uint8Array | undefined
    /** The generation of the newest token, which is stored outside the database; undefined if there is none. */
    readonly generation: string | undefined
    /** Resolves when both are durable. An undefined entry removes both. */
    write(entry: Uint8Array | undefined, generation?: string): Promise<void>
  }
  /** Calls `sys/wrapping/unwrap` of another server. Rejects with an Error if there is no response. */
  unwrap(token: string, target: UnwrapTarget): Promise<{ readonly status: number; readonly text: string }>
}
