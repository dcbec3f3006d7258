/**
 * Watches whether all NATS servers that should store the commit stream and the bucket do so. Without one of them nothing fails, but the loss of
 * another one stops the cluster, so the loss must be reported before that happens. A NATS server with a full disk disables JetStream, and
 * stays connected.
 *
 * What can go wrong. Without a response of the leader of a stream nothing is known, and nothing is reported: the lease and readiness have that
 * cause.
 */
import { jetstreamManager, type StreamInfo } from '@nats-io/jetstream'
import type { NatsConnection } from '@nats-io/transport-node'
import type { Logger } from '../platform/log.ts'

const INTERVAL_MS = 5000
const REQUEST_MS = 1000
const NS_PER_SECOND = 1e9
/** Replicas send a heartbeat each second. */
const SILENT_S = 10
/** Messages. */
const LAG_MAX = 1000

/** A NATS server that does not store the newest messages. */
export interface MissingReplica {
  /** Name of the NATS server. */
  readonly server: string
  readonly reason: string
}

export interface ReplicaMonitorOptions {
  readonly connection: NatsConnection
  /** Names of the streams. */
  readonly streams: readonly string[]
  readonly logger: Logger
  readonly warn: (message: string, error: unknown) => void
}

export class ReplicaMonitor {
  readonly #options: ReplicaMonitorOptions
  #timer: NodeJS.Timeout | undefined
  /** Names in the last response. A server that is behind for a moment is not missing. */
  #seen: ReadonlySet<string> = new Set()
  #missing: readonly MissingReplica[] = []

  constructor(options: ReplicaMonitorOptions) {
    this.#options = options
  }

  get missing(): readonly MissingReplica[] {
    return this.#missing
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.#poll().catch((error: unknown) =>
        this.#options.warn('replicas of the commit stream unknown, retrying', error),
      )
    }, INTERVAL_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  async #poll(): Promise<void> {
    const { connection, streams } = this.#options
    const manager = await jetstreamManager(connection, { timeout: REQUEST_MS, checkAPI: false })
    // A missing response about one stream, such as during an election, must not hide a fault of the other.
    const answers = await Promise.allSettled(streams.map((stream) => manager.streams.info(stream)))
    const infos = answers
      .flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []))
      .filter(isFromLeader)
    const found = new Map(infos.flatMap(missingReplicas).map((replica) => [replica.server, replica]))
    const seen = this.#seen
    this.#seen = new Set(found.keys())
    if (infos.length === 0) this.#missing = []
    else this.#report([...found.values()].filter(({ server }) => seen.has(server)))
  }

  #report(missing: readonly MissingReplica[]): void {
    const { logger } = this.#options
    const before = this.#missing
    this.#missing = missing
    for (const { reason, server } of missing) {
      if (!before.some((replica) => replica.server === server)) {
        logger.warn('NATS server does not store the commit stream', { server, reason })
      }
    }
    if (before.length > 0 && missing.length === 0) logger.info('all NATS servers store the commit stream')
  }
}

/** Without a leader, another replica responds, which knows nothing about the state of the others. */
export function isFromLeader({ cluster }: Pick<StreamInfo, 'cluster'>): boolean {
  return cluster === undefined || (cluster.leader ?? '') !== ''
}

/**
 * From the response of the leader of a stream. `current` alone does not decide: it is also false for a busy replica that is one message behind.
 * A leader that was elected after a replica was lost has never heard from it, and states 0 for the time since.
 */
export function missingReplicas({ cluster }: Pick<StreamInfo, 'cluster'>): MissingReplica[] {
  return (cluster?.replicas ?? []).flatMap(({ active, current, lag, name, offline }) => {
    const silentS = Math.round(active / NS_PER_SECOND)
    if (offline) return { server: name, reason: 'offline' }
    if (silentS >= SILENT_S) return { server: name, reason: `no contact for ${silentS} s` }
    if (!current && active === 0) return { server: name, reason: 'no contact' }
    return lag > LAG_MAX ? { server: name, reason: `${lag} messages behind` } : []
  })
}
