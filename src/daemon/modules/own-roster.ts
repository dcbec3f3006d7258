/**
 * The roster of an agent without servers: its own node and allocations, in memory. So `/v1/allocations`, `/v1/nodes` and `/v1/jobs`
 * work on every agent, and commands resolve IDs of a server and of a single host in the same way.
 */
import { randomUUID } from 'node:crypto'
import { digestOf } from '../../cluster/roster/node-messages.ts'
import { Roster } from '../../cluster/roster/roster.ts'
import { NO_STORE } from '../../cluster/roster/roster-records.ts'
import { ServerApi } from '../../cluster/api/server-operations.ts'
import { TIMINGS } from '../../cluster/nats/timings.ts'
import { WIRE_VERSION } from '../../cluster/rpc/call-wire.ts'
import type { Config } from '../../config/load.ts'
import { nodeStateOf } from './node-state.ts'
import type { Host } from '../../host/host.ts'
import { fsLogs } from '../../host/logs/task-logs.ts'
import { Fault } from '../../platform/errors.ts'
import { SILENT_LOGGER } from '../../platform/log.ts'
import type { AnyOperation } from '../../platform/operation.ts'
import { yieldIfDue } from '../../platform/scheduler.ts'

/** Messages within one process are not signed. */
const NO_KEY = Buffer.alloc(0)

export interface OwnRosterOptions {
  readonly host: Host
  readonly config: Config
  readonly version: string
  /** The HTTP address of the process. */
  readonly url: string
}

export class OwnRoster {
  readonly #options: OwnRosterOptions
  readonly #roster: Roster
  readonly #api: ServerApi
  #sequence = 0
  #refreshedAtMs = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined
  #isStopped = false
  #isRefreshing = false
  #unlisten: () => void = () => undefined

  constructor(options: OwnRosterOptions) {
    const { config, version } = options
    this.#options = options
    this.#roster = new Roster({ store: NO_STORE, logger: SILENT_LOGGER })
    this.#api = new ServerApi({
      roster: this.#roster,
      region: config.region,
      facts: { name: config.name, datacenter: config.datacenter, version, id: randomUUID(), address: () => '' },
      servers: { list: async () => [] },
      collect: () => Promise.reject(new Fault('an agent without servers cannot collect garbage on other hosts')),
      logger: SILENT_LOGGER,
    })
  }

  operations(): AnyOperation[] {
    const logs = this.#options.host.operations.find(({ name }) => name === fsLogs.endpoint.name)
    if (!logs) throw new Fault('the operation host.logs is missing')
    return this.#api.localOperations(logs)
  }

  /** Resolves when the roster has the node and its allocations. */
  async start(): Promise<void> {
    this.#unlisten()
    this.#unlisten = this.#options.host.allocations.onChange(() => this.#schedule(TIMINGS.stateIntervalMs))
    await this.#refresh()
  }

  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
    this.#unlisten()
    this.#api.stop()
  }

  /** Coalesces changes within `restMs` of the last refresh. */
  #schedule(restMs: number): void {
    if (this.#isStopped || this.#isRefreshing) return
    clearTimeout(this.#timer)
    const waitMs = Math.max(0, this.#refreshedAtMs + restMs - performance.now())
    this.#timer = setTimeout(() => void this.#refresh(), waitMs).unref()
  }

  /** Metadata and attributes have no change events: they are read again at the heartbeat interval of nodes. */
  async #refresh(): Promise<void> {
    this.#isRefreshing = true
    this.#refreshedAtMs = performance.now()
    const { host, url, ...about } = this.#options
    let hasChanged = false
    const unlisten = host.allocations.onChange(() => (hasChanged = true))
    const state = nodeStateOf(host, about, url)
    const order = { version: WIRE_VERSION, run: 1, sequence: ++this.#sequence, digest: digestOf(state) }
    const message = { kind: 'state' as const, ...order, sentAtMs: Date.now(), node: state.node }
    const signed = { message: { ...message, allocations: [...state.allocations] }, publicKey: NO_KEY }
    const slices = this.#roster.applyInSlices(host.nodeId, signed)
    while (slices.next().done !== true) {
      const turn = yieldIfDue()
      if (turn) await turn
    }
    unlisten()
    this.#isRefreshing = false
    this.#schedule(hasChanged ? TIMINGS.stateIntervalMs : TIMINGS.heartbeatMs)
  }
}
