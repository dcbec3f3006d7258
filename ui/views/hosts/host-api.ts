/** Requests of the views of hosts. */
import { read, send } from '../../api/client.ts'
import type { ServerNode } from '../../api/types.ts'
import type { ShowPart } from '../../app/resource.ts'
import type { HostStub } from './host-filter.ts'
import { hostUsage, type HostUsage } from './usage.ts'

/** Shown at once: more than a screen has. */
const FIRST_PAGE = 100
/** Parsed within one frame. */
const PAGE = 1000

interface HeartbeatAge {
  /** Of a ready host whose heartbeat is late. */
  readonly SecondsSinceHeartbeat?: number
}

function withHeartbeat<T extends object>(host: T & HeartbeatAge): T & Pick<HostStub, 'heartbeatAtMs'> {
  const { SecondsSinceHeartbeat: seconds } = host
  return seconds === undefined ? host : { ...host, heartbeatAtMs: Date.now() - seconds * 1000 }
}

export type Host = ServerNode & Pick<HostStub, 'heartbeatAtMs'>

export async function readHost(id: string, signal: AbortSignal): Promise<Host> {
  return withHeartbeat(await read('/v1/node/{id}', { params: { id }, query: { heartbeat_age: true }, signal }))
}

/** All hosts, or those with all of this metadata. Shows the first page while the others are loaded. */
export async function loadHosts(
  meta: readonly (readonly [string, string])[],
  signal: AbortSignal,
  showPart?: ShowPart<readonly HostStub[]>,
): Promise<readonly HostStub[]> {
  const selection = Object.fromEntries(meta.map(([key, value]) => [`meta.${key}`, value]))
  const hosts: HostStub[] = []
  let next: string | undefined
  do {
    const query = {
      ...selection,
      status_time: true,
      heartbeat_age: true,
      per_page: next === undefined ? FIRST_PAGE : PAGE,
      next_token: next,
    }
    const response = await send('/v1/nodes', { query, signal })
    const received: readonly HostStub[] = await response.json()
    const page = received.map((host) => withHeartbeat(host))
    hosts.push(...page)
    next = response.headers.get('X-Nomad-NextToken') ?? undefined
    if (next !== undefined && hosts.length === page.length) showPart?.(page)
  } while (next !== undefined)
  return hosts
}

export async function readUsage(nodeId: string, signal: AbortSignal): Promise<HostUsage> {
  return hostUsage(await read('/v1/client/stats', { query: { node_id: nodeId }, signal }))
}

/** With the network counters, if the version of the host has them. */
export async function readUsageAndNetwork(nodeId: string, signal: AbortSignal): Promise<HostUsage> {
  return hostUsage(await read('/v1/client/stats', { query: { node_id: nodeId, network: true }, signal }))
}

export async function countAllocations(nodeId: string, signal: AbortSignal): Promise<number> {
  const allocations = await read('/v1/node/{id}/allocations', { params: { id: nodeId }, signal })
  return allocations.filter(({ ClientStatus }) => ClientStatus === 'running' || ClientStatus === 'pending').length
}
