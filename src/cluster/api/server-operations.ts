/**
 * All endpoints that a server answers from its roster. An agent needs only their declarations (`SERVER_ENDPOINTS`) to forward
 * calls to a server; a server binds them to its services.
 */
import type { Logger } from '../../platform/log.ts'
import type { AnyOperation, EndpointBinding } from '../../platform/operation.ts'
import type { Roster } from '../roster/roster.ts'
import type { RegionServers } from '../roster/region-servers.ts'
import { RosterQueries } from '../roster/roster-queries.ts'
import { allocation, allocations } from './allocations-operations.ts'
import { eventStream, RosterEvents } from './event-stream.ts'
import { jobLogs } from './job-logs.ts'
import { job, jobAllocations, jobDeployment, jobEvaluations, jobs, jobSummaryEndpoint } from './jobs-operations.ts'
import { node, nodeAllocations, nodePurge, nodes } from './nodes-operations.ts'
import { search } from './search-operation.ts'
import {
  agentMembers,
  leader,
  operatorMembers,
  license,
  namespaces,
  type NodeCollector,
  peers,
  regions,
  type ServerFacts,
  systemGc,
} from './status-operations.ts'

export interface ServerApiOptions {
  readonly roster: Roster
  readonly region: string
  readonly facts: ServerFacts
  readonly servers: Pick<RegionServers, 'list'>
  readonly collect: NodeCollector
  readonly logger: Logger
}

/** Services of the handlers. */
interface ServerApiDeps extends ServerApiOptions {
  readonly queries: RosterQueries
  readonly events: RosterEvents
  /** `host.logs`, as this process routes it. */
  readonly logs: AnyOperation
}

/** The router uses the first match, and a job ID matches the rest of a path: specific routes come first. */
const TABLE: readonly EndpointBinding<ServerApiDeps>[] = [
  jobLogs,
  nodes,
  nodeAllocations,
  nodePurge,
  node,
  allocations,
  allocation,
  jobs,
  jobAllocations,
  jobSummaryEndpoint,
  jobEvaluations,
  jobDeployment,
  job,
  leader,
  peers,
  regions,
  agentMembers,
  operatorMembers,
  namespaces,
  license,
  search,
  systemGc,
  eventStream,
]

/** For a process that only forwards their calls. */
export const SERVER_ENDPOINTS = TABLE.map(({ endpoint }) => endpoint)

/** Endpoints that only a server has: about servers, about the region, and those that change other hosts. */
const SERVER_ONLY: ReadonlySet<EndpointBinding<ServerApiDeps>> = new Set<EndpointBinding<ServerApiDeps>>([
  nodePurge,
  leader,
  peers,
  regions,
  agentMembers,
  operatorMembers,
  namespaces,
  license,
  systemGc,
])

export class ServerApi {
  readonly queries: RosterQueries
  readonly #options: ServerApiOptions
  readonly #events: RosterEvents

  constructor(options: ServerApiOptions) {
    this.#options = options
    this.queries = new RosterQueries(options.roster)
    this.#events = new RosterEvents(options.roster)
  }

  /** All operations. `logs` is `host.logs`, as this process routes it. */
  operations(logs: AnyOperation): AnyOperation[] {
    return TABLE.map((each) => each.in(this.#deps(logs)))
  }

  /** Operations of an agent without servers, whose roster has its own node only. */
  localOperations(logs: AnyOperation): AnyOperation[] {
    return TABLE.filter((each) => !SERVER_ONLY.has(each)).map((each) => each.in(this.#deps(logs)))
  }

  #deps(logs: AnyOperation): ServerApiDeps {
    return { ...this.#options, queries: this.queries, events: this.#events, logs }
  }

  stop(): void {
    this.#events.stop()
    this.queries.stop()
  }
}
