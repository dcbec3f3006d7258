/**
 * What the endpoints of replication need of the process around the core. The room that replicates knows no keys and no
 * tokens, and this one no links: the daemon joins both (`daemon/dr.ts`).
 */
import { Rejection } from '../../engines/framework/engine.ts'
import { Refusal } from '../../platform/errors.ts'

export type DrMode = 'disabled' | 'primary' | 'secondary'

export interface DrBrief {
  /** As `DrMode`, and `bootstrapping` while the first copy of a secondary is not whole. */
  readonly mode: string
  /** Whether commits wait for secondaries: `off`, `on` or `degraded`. */
  readonly sync: string
}

export interface DrFence {
  readonly reason: 'replaced' | 'isolated'
  /** In words. */
  readonly text: string
}

/** What a secondary is activated with; its members are the business of the room that replicates. */
export type Bundle = Readonly<Record<string, unknown>>

/** How the cluster takes part in replication for disaster recovery, and what changes that. Refusals are told as they are. */
export interface DrReplication {
  readonly mode: DrMode
  /** Of the primary, where a secondary knows it; for people. */
  readonly primaryAddress: string | undefined
  /** Why this primary is fenced, for callers; undefined while it is not, and in other modes. Asked for each request. */
  readonly fence: DrFence | undefined
  /** What is known at once, of what `status` says. */
  readonly brief: DrBrief
  /** What keeps secondaries on other hosts from this primary; empty in other modes. */
  readonly warnings: readonly string[]
  /** The members of `sys/replication/dr/status`. */
  status(): Promise<Readonly<Record<string, unknown>>>
  enablePrimary(options: { readonly primaryClusterAddr: string }): Promise<void>
  /** With `secondaryId`: refused, and the primary goes on, unless that secondary has everything. */
  demote(options: { readonly secondaryId: string }): Promise<void>
  /** Of either role. */
  disable(): Promise<void>
  /** A bundle, or a text that only the owner of the public key can open. */
  issueSecondary(options: {
    readonly id: string
    readonly ttlMs: number
    readonly publicKey?: string
  }): Promise<{ readonly bundle: Bundle } | { readonly sealed: string }>
  revokeSecondary(id: string): Promise<void>
  generatePublicKey(): Promise<string>
  /** Opens what `issueSecondary` sealed to the public key of this server. */
  openSealedBundle(token: string): Promise<Bundle>
  /** Checks what another server gave. Throws a Refusal for what is no bundle. */
  parseBundle(value: unknown): Bundle
  enableSecondary(bundle: Bundle): Promise<void>
  promote(options: { readonly primaryClusterAddr: string; readonly force: boolean }): Promise<void>
  updatePrimary(
    to: { readonly bundle: Bundle } | { readonly addresses: readonly string[] } | { readonly forget: true },
  ): Promise<void>
  reindex(options: { readonly diff: boolean; readonly force: boolean; readonly skipFlush: boolean }): Promise<void>
  /** With the member `merkle_corruption_report`. */
  merkleCheck(): Promise<Readonly<Record<string, unknown>>>
}

/** Where a wrapping token is taken to. */
export interface UnwrapTarget {
  /** URL of a server; without a path. */
  readonly address: string
  readonly caFile: string
  readonly caPath: string
  /** PEM text. */
  readonly caCert: string
}

export interface ReplicationSide {
  readonly dr: DrReplication
  /**
   * The barrier is open, or its root key is held, and nothing is served yet. Resolves when the role of this cluster and promotions of
   * other clusters that were reported while it was sealed are verified, and the store takes no more writes where one is proven.
   * Rejects with a Refusal for a role that another program changed.
   */
  unsealed(): Promise<void>
  /** Where the entry of the operation token lies: in the database, of this machine alone. */
  readonly operationToken: {
    read(): Uint8Array | undefined
    /** The generation of the newest token, as it is kept outside the database; undefined where there is none. */
    readonly generation: string | undefined
    /** Resolves once both are durable; undefined removes them. */
    write(entry: Uint8Array | undefined, generation?: string): Promise<void>
  }
  /** `sys/wrapping/unwrap` of another server. Rejects with an Error whose message says why there is no answer. */
  unwrap(token: string, target: UnwrapTarget): Promise<{ readonly status: number; readonly text: string }>
}

/** For a request that a fenced primary does not serve: what it would read may have changed elsewhere. */
export function fencedPrimary({ reason, text }: DrFence): Refusal {
  const next =
    reason === 'replaced' ? 'send requests there' : 'it serves again when a secondary connects and is unsealed'
  return new Refusal('unavailable', `this DR primary is fenced and serves no requests: ${text}; ${next}`)
}

/** What load balancers, monitors and stock commands know a request by that such a server does not serve. */
export const DISABLED_ON_SECONDARY = 'path disabled in replication DR secondary mode'

/** For a request that a secondary does not serve. */
export function disabledOnSecondary({ primaryAddress }: Pick<DrReplication, 'primaryAddress'>): Rejection {
  const where = primaryAddress ? [`ask the primary, ${primaryAddress}`] : []
  return new Rejection(400, [DISABLED_ON_SECONDARY, ...where])
}
