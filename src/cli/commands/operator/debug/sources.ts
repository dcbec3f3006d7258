/** The content of a debug bundle: the requests, and the description of each file for the index and the documentation. */

export interface JsonSource {
  readonly path: string
  readonly description: string
  readonly request: string
  readonly query?: Readonly<Record<string, string>>
  /** True if the status reports the state: other responses than 200 are collected as well, except 404. */
  readonly isStatus?: boolean
}

const RUNTIME: JsonSource = {
  path: 'runtime.jsonl',
  description: 'Event loop delay, heap, handles, descriptors and threads',
  request: '/v1/agent/runtime',
}

/** Collected once, at the beginning. */
export const SERVER_SOURCES: readonly JsonSource[] = [
  {
    path: 'agent.json',
    description: 'Configuration of the process without secrets, roles, version',
    request: '/v1/agent/self',
  },
  {
    path: 'config.json',
    description: 'Configuration of the server without secrets',
    request: '/v1/sys/config/state/sanitized',
  },
  { path: 'health.json', description: 'State of the secrets core', request: '/v1/sys/health', isStatus: true },
  { path: 'seal-status.json', description: 'State of the seal', request: '/v1/sys/seal-status', isStatus: true },
  { path: 'replication.json', description: 'State of disaster recovery', request: '/v1/sys/replication/status' },
  {
    path: 'versions.json',
    description: 'Versions that have served this core',
    request: '/v1/sys/version-history',
    query: { list: 'true' },
  },
  {
    path: 'host.json',
    description: 'Processors, memory and file systems of the machine',
    request: '/v1/sys/host-info',
  },
  {
    path: 'members.json',
    description: 'Servers of the region with version and state',
    request: '/v1/operator/members',
  },
]

/** Collected at the beginning and once in each interval, one object in a line. */
export const SAMPLED_SOURCES: readonly JsonSource[] = [
  { path: 'metrics.jsonl', description: 'Metrics', request: '/v1/metrics' },
  { path: 'readiness.jsonl', description: 'Readiness checks and warnings', request: '/v1/agent/ready', isStatus: true },
  RUNTIME,
]

/** Of each selected node, below `nodes/NAME/`; the requests have the parameter `node_id`. */
export const NODE_SAMPLED_SOURCES: readonly JsonSource[] = [
  RUNTIME,
  { path: 'stats.jsonl', description: 'Resource usage of the host', request: '/v1/client/stats' },
]

export const LOG_DESCRIPTION = 'Log of the period'
export const ROSTER = {
  path: 'roster.json',
  description: 'Nodes by status, version and datacenter, nodes that are not ready, allocations by status',
  source: '/v1/nodes and /v1/allocations',
}
