/** Every endpoint of a server that the roster answers. */
import type { Logger } from '../kit/log.ts'
import type { AnyOperation } from '../kit/operation.ts'
import { allocationsOperations } from './allocations-operations.ts'
import { Events, eventStreamOperation } from './event-stream.ts'
import { Fleet } from './fleet.ts'
import { jobLogsOperation } from './job-logs.ts'
import { jobsOperations } from './jobs-operations.ts'
import { nodesOperations } from './nodes-operations.ts'
import type { Roster } from './roster.ts'
import { searchOperation } from './search-operation.ts'
import { type NodeCaller, type ServerFacts, statusOperations, systemGcOperation } from './status-operations.ts'

export interface ServerOptions {
  readonly roster: Roster
  readonly region: string
  readonly facts: ServerFacts
  readonly collect: NodeCaller
  readonly logger: Logger
}

/** A server's endpoints and what they keep. */
export class ServerRoom {
  readonly fleet: Fleet
  readonly operations: readonly AnyOperation[]
  readonly #events: Events
  readonly #region: string

  constructor({ roster, region, facts, collect, logger }: ServerOptions) {
    this.fleet = new Fleet(roster)
    this.#events = new Events(roster)
    this.#region = region
    const parts = { fleet: this.fleet, region }
    this.operations = [
      ...nodesOperations(parts),
      ...allocationsOperations(parts),
      ...jobsOperations(parts),
      ...statusOperations(parts, facts),
      searchOperation(parts),
      systemGcOperation(parts, collect, ({ asked, failed, error }) => {
        if (failed === 0) logger.info('every node was asked to collect', { nodes: asked })
        else logger.warn('not every node took the order to collect', { nodes: asked, failed, error })
      }),
      eventStreamOperation(parts, this.#events),
    ]
  }

  /** The logs of a job, from `logs`, which is `host.logs` as this process routes it. To be served before `operations`. */
  jobLogs(logs: AnyOperation): AnyOperation {
    return jobLogsOperation({ fleet: this.fleet, region: this.#region }, logs)
  }

  stop(): void {
    this.#events.stop()
    this.fleet.stop()
  }
}
