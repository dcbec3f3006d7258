/**
 * Every endpoint of a server that the roster answers. An agent needs no more of them than `SERVER_ENDPOINTS`, whose calls it
 * hands on to a server; a server binds them to what it has.
 */
import type { Logger } from '../../platform/log.ts'
import type { AnyOperation, RoomEndpoint } from '../../platform/operation.ts'
import { allocation, allocations } from './allocations-operations.ts'
import { Events, eventStream } from './event-stream.ts'
import { RosterQueries } from '../roster/roster-queries.ts'
import { jobLogs } from './job-logs.ts'
import { job, jobAllocations, jobDeployment, jobEvaluations, jobs, jobSummaryReading } from './jobs-operations.ts'
import { node, nodeAllocations, nodePurge, nodes } from './nodes-operations.ts'
import type { Roster } from '../roster/roster.ts'
import { search } from './search-operation.ts'
import {
  agentMembers,
  leader,
  license,
  namespaces,
  type NodeCaller,
  peers,
  regions,
  type ServerFacts,
  systemGc,
} from './status-operations.ts'

export interface ServerOptions {
  readonly roster: Roster
  readonly region: string
  readonly facts: ServerFacts
  readonly collect: NodeCaller
  readonly logger: Logger
}

/** What the handlers of a server are made of. */
interface ServerRoomParts extends ServerOptions {
  readonly queries: RosterQueries
  readonly events: Events
  /** `host.logs` as this process routes it. */
  readonly logs: AnyOperation
}

/** A line each. The router takes the first that fits, and an ID takes what is left of a path. */
const TABLE: readonly RoomEndpoint<ServerRoomParts>[] = [
  jobLogs,
  nodes,
  nodeAllocations,
  nodePurge,
  node,
  allocations,
  allocation,
  jobs,
  jobAllocations,
  jobSummaryReading,
  jobEvaluations,
  jobDeployment,
  job,
  leader,
  peers,
  regions,
  agentMembers,
  namespaces,
  license,
  search,
  systemGc,
  eventStream,
]

/** As data, for a process that only hands their calls on. */
export const SERVER_ENDPOINTS = TABLE.map(({ endpoint }) => endpoint)

/** What only a server answers: who the servers are, what is the same for all hosts, and what changes other hosts. */
const OF_SERVERS: ReadonlySet<RoomEndpoint<ServerRoomParts>> = new Set<RoomEndpoint<ServerRoomParts>>([
  nodePurge,
  leader,
  peers,
  regions,
  agentMembers,
  namespaces,
  license,
  systemGc,
])

/** What a server's endpoints keep. */
export class ServerRoom {
  readonly queries: RosterQueries
  readonly #options: ServerOptions
  readonly #events: Events

  constructor(options: ServerOptions) {
    this.#options = options
    this.queries = new RosterQueries(options.roster)
    this.#events = new Events(options.roster)
  }

  /** The endpoints, with `logs`, which is `host.logs` as this process routes it. */
  operations(logs: AnyOperation): AnyOperation[] {
    return TABLE.map((each) => each.in(this.#parts(logs)))
  }

  /** Those that read the roster, for an agent without servers, whose roster has its own node only. */
  readings(logs: AnyOperation): AnyOperation[] {
    return TABLE.filter((each) => !OF_SERVERS.has(each)).map((each) => each.in(this.#parts(logs)))
  }

  #parts(logs: AnyOperation): ServerRoomParts {
    return { ...this.#options, queries: this.queries, events: this.#events, logs }
  }

  stop(): void {
    this.#events.stop()
    this.queries.stop()
  }
}
