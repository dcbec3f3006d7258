/**
 * `sys/leader`, `sys/ha-status` and `sys/ha/members`: the servers of a highly available core. Fields without a meaning here exist
 * because some clients require them.
 */
import { hostname } from 'node:os'
import { path, type Path, type Reply } from '../../engines/framework/engine.ts'
import { inPath } from '../../engines/framework/fields.ts'
import { Refusal, sealed } from '../../platform/errors.ts'
import type { EventLog } from '../dr-endpoints/dr-side.ts'
import type { HaMember, HaSide } from './ha-side.ts'

/** The zero of the time type of stock clients. */
const NEVER = '0001-01-01T00:00:00Z'
const NOT_ENABLED =
  'high availability is not enabled: set server { ha { enabled = true } } on each server and restart them'

/** The part of the core that these endpoints use. */
export interface HaParts {
  readonly isSealed: boolean
  readonly options: {
    readonly version: string
    readonly serverInfo?: { readonly apiAddress?: () => string; readonly clusterAddress?: () => string }
    /** Absent without high availability. */
    readonly ha?: HaSide
  }
}

export function haPaths(core: HaParts, logEvent: EventLog): Path[] {
  return [
    path({
      pattern: 'leader',
      summary: 'Read the active server',
      unauthenticated: true,
      whileSealed: true,
      onSecondary: true,
      fields: {},
      read: () => ({ bare: leader(core) }),
    }),
    path({
      pattern: 'ha-status',
      summary: 'List the servers of this cluster',
      fields: {},
      async read(): Promise<Reply> {
        const { ha } = core.options
        const nodes = ha ? (await ha.members()).map((member) => nodeOf(member, ha)) : [onlyNode(core)]
        return { data: { nodes }, flattened: true }
      },
    }),
    path({
      pattern: 'ha/members',
      summary: 'List the servers of this cluster with role, position and lag',
      fields: {},
      async read(): Promise<Reply> {
        const ha = enabled(core)
        const members = (await ha.members()).map(memberOf)
        return { data: { members, committed: ha.committed, applied: ha.applied } }
      },
    }),
    path({
      pattern: 'ha/members/:name',
      summary: 'Remove a lost server from the cluster',
      sudo: true,
      fields: { name: inPath('Name of the server') },
      async delete({ name }, call) {
        await enabled(core).removeMember(name)
        logEvent('server removed from the cluster', call, { server: name })
        return undefined
      },
    }),
  ]
}

/** Throws a Refusal without high availability. */
function enabled({ options: { ha } }: HaParts): HaSide {
  if (!ha) throw new Refusal('invalid_request', NOT_ENABLED)
  return ha
}

/** Throws a Refusal (503) while the server is sealed: stock clients then report that high availability is enabled. */
function leader(core: HaParts): Record<string, unknown> {
  const { ha } = core.options
  if (ha && core.isSealed) throw sealed()
  const { active } = ha ?? {}
  return {
    ha_enabled: ha !== undefined,
    is_self: active?.isSelf ?? false,
    // Stock clients show it for the active server only.
    active_time: active?.isSelf ? rfc3339(active.activeSinceMs) : NEVER,
    leader_address: active?.apiAddress ?? '',
    leader_cluster_address: active?.clusterAddress ?? '',
    performance_standby: false,
    performance_standby_last_remote_wal: 0,
    ...(ha && { raft_committed_index: ha.committed, raft_applied_index: ha.applied }),
  }
}

function rfc3339(ms: number): string {
  return new Date(ms).toISOString()
}

/** A server without high availability. */
function onlyNode({ options: { serverInfo, version } }: HaParts): Record<string, unknown> {
  return {
    hostname: hostname(),
    api_address: serverInfo?.apiAddress?.() ?? '',
    cluster_address: serverInfo?.clusterAddress?.() ?? '',
    active_node: true,
    last_echo: null,
    version,
  }
}

/** `hostname` is the name of the server: several servers may share a host. */
function nodeOf(member: HaMember, { active }: HaSide): Record<string, unknown> {
  const isActive = member.role === 'active'
  return {
    hostname: member.name,
    api_address: member.apiAddress,
    cluster_address: isActive && active?.name === member.name ? active.clusterAddress : '',
    active_node: isActive,
    last_echo: isActive ? null : rfc3339(member.lastSeenMs),
    version: member.version,
    upgrade_version: member.version,
  }
}

function memberOf(member: HaMember): Record<string, unknown> {
  return {
    name: member.name,
    server_id: member.serverId,
    api_address: member.apiAddress,
    version: member.version,
    role: member.role,
    position: member.position,
    lag: member.lag,
    last_seen: rfc3339(member.lastSeenMs),
    is_self: member.isSelf,
  }
}
