/** The dependencies of a member of an HA cluster, and its phases. */
import type { NatsConnection } from '@nats-io/transport-node'
import type { Logger } from '../platform/log.ts'
import type { SqliteStore } from '../storage/store/store.ts'

export type HaPhase = 'starting' | 'standby' | 'taking over' | 'active' | 'stepping down' | 'stopped'

/** The secrets core, as this module uses it. */
export interface HaCore {
  /** `unsealed`: the server may become active: it holds the root key, or it is a DR secondary. */
  readonly state: 'uninitialized' | 'sealed' | 'unsealed'
  /**
   * This server is a DR secondary without the root key, such as before its initial sync. It may be active, so that the cluster follows its primary,
   * and yields to a member that has the key.
   */
  readonly lacksKey?: boolean
  /** The core's clock. */
  nowMs(): number
  /**
   * Opens the core on the entries of the database. `clockMs`: its clock must not start before this time. `idleMs`: how long no server was active;
   * undefined if that is not known.
   */
  open(term: { readonly clockMs: number; readonly idleMs: number | undefined }): Promise<void>
  /**
   * Closes the core; resolves when its commits are durable or have failed. `isOrderly`: the lease is still valid, so requests in progress
   * may end first, for a short time.
   */
  close(isOrderly: boolean): Promise<void>
}

export interface HaServerOptions {
  readonly store: SqliteStore
  /** Rejects with a Fault for the operator. It reconnects automatically. */
  readonly connect: () => Promise<NatsConnection>
  readonly core: HaCore
  readonly region: string
  readonly replicas: number
  readonly name: string
  readonly serverId: string
  readonly version: string
  readonly addresses: () => { readonly api: string; readonly cluster: string }
  /** Time of the newest complete snapshot, in milliseconds since the epoch; 0: never. */
  readonly snapshotAtMs?: () => number
  readonly logger: Logger
  readonly nowMs?: () => number
  readonly wallMs?: () => number
}
