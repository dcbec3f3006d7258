/** What a member of an HA cluster is given, and its phases. */
import type { NatsConnection } from '@nats-io/transport-node'
import type { Logger } from '../platform/log.ts'
import type { SqliteStore } from '../storage/store/store.ts'

export type HaPhase = 'starting' | 'standby' | 'taking over' | 'active' | 'stepping down' | 'stopped'

/** The secrets core, as this module uses it. */
export interface HaCore {
  /** `unsealed`: the server holds the root key and may become active. */
  readonly state: 'uninitialized' | 'sealed' | 'unsealed'
  /** Opens the core on the entries of the database. */
  open(): Promise<void>
  /**
   * Closes the core; resolves when its commits are durable or have failed. `isOrderly`: the lease is still valid, so requests in progress
   * may end first, for a short time.
   */
  close(isOrderly: boolean): Promise<void>
}

export interface HaServerOptions {
  readonly store: SqliteStore
  /** Rejects with a Fault for the operator. It reconnects by itself. */
  readonly connect: (signal: AbortSignal) => Promise<NatsConnection>
  readonly core: HaCore
  readonly region: string
  readonly replicas: number
  readonly name: string
  readonly serverId: string
  readonly version: string
  readonly addresses: () => { readonly api: string; readonly cluster: string }
  readonly logger: Logger
  readonly nowMs?: () => number
  readonly wallMs?: () => number
}
