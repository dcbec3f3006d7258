/**
 * Keeps the leaders of the stream and the bucket on NATS servers of other hosts than that of the active server. So the loss of its host costs
 * no election of NATS, which takes four to nine seconds, but only the time of the lease.
 */
import { networkInterfaces } from 'node:os'
import { jetstreamManager } from '@nats-io/jetstream'
import type { NatsConnection } from '@nats-io/transport-node'

const INTERVAL_MS = 10_000
const REQUEST_MS = 1000

/** The servers on this host first, in their order, then the others in random order. */
export function localFirst(servers: readonly string[], random = Math.random): string[] {
  const others = servers.filter((server) => !isLocal(server)).map((server) => ({ server, at: random() }))
  return [...servers.filter(isLocal), ...others.toSorted((a, b) => a.at - b.at).map(({ server }) => server)]
}

/** Whether a URL, or a host with a port, names an address of this host. Names other than localhost are not resolved. */
export function isLocal(server: string): boolean {
  const host = URL.parse(`http://${server.replace(/^[a-z]+:\/\//i, '')}`)?.hostname.replace(/^\[|\]$/g, '')
  if (host === undefined) return false
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
  return /^(?:localhost$|127\.|::1$)/.test(host) || own.some(({ address }) => address === host)
}

export interface LeaderPlacementOptions {
  readonly connection: NatsConnection
  /** Names of the streams. */
  readonly streams: readonly string[]
  readonly isActive: () => boolean
  readonly warn: (message: string, error: unknown) => void
}

export class LeaderPlacement {
  readonly #options: LeaderPlacementOptions
  #timer: NodeJS.Timeout | undefined

  constructor(options: LeaderPlacementOptions) {
    this.#options = options
  }

  start(): void {
    const { isActive, warn } = this.#options
    this.#timer = setInterval(() => {
      if (isActive())
        this.#place().catch((error: unknown) => warn('leader of the commit stream not moved, retrying', error))
    }, INTERVAL_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  async #place(): Promise<void> {
    const { connection, streams } = this.#options
    const own = connection.info?.server_name
    if (own === undefined || !isLocal(connection.getServer())) return
    const manager = await jetstreamManager(connection, { timeout: REQUEST_MS, checkAPI: false })
    for (const stream of streams) {
      const { cluster } = await manager.streams.info(stream)
      const other = cluster?.replicas?.find(({ current, name }) => current && name !== own)
      if (cluster?.leader !== own || !other) continue
      const request = JSON.stringify({ placement: { preferred: other.name } })
      await connection.request(`$JS.API.STREAM.LEADER.STEPDOWN.${stream}`, request, { timeout: REQUEST_MS })
    }
  }
}
