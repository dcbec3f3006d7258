/**
 * The servers of a region, for operators. A server knows the others by their announcements, of which it requests new ones for each
 * list: an announcement stays stored for minutes after its server has stopped.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { TIMINGS } from '../nats/timings.ts'
import type { KnownServer, ServerKeys } from '../trust/server-trust.ts'

/** Timeout for the announcements of all known servers. */
const ANSWER_TIMEOUT_MS = 2000
const POLL_MS = 50
/** Requests for announcements are debounced, so an announcement may answer a request of another list that was sent before. */
const DEBOUNCE_MS = 500

export interface ServerMember {
  readonly ID: string
  /** Empty for a server of an older version, as `Version`, `Address` and `CoreState`. */
  readonly Name: string
  readonly Version: string
  /** Of the HTTP API, `host:port`. */
  readonly Address: string
  readonly HasCore: boolean
  /** `active`: serves secrets; `ha_standby`, `standby`, `sealed`, `fenced`, `uninitialized`; empty without a core. */
  readonly CoreState: string
  readonly ClusterID: string
  /** Of a server of a highly available core: `active`, `standby`, `sealed`, `uninitialized` or `lost`. Empty for other servers. */
  readonly Role: string
  /** Sequence of its newest applied commit, and its distance to the active server; 0 for other servers. */
  readonly Position: number
  readonly Lag: number
  /** `alive`, `silent` for a server that did not answer, `unknown` while the server that made the list is not connected to NATS. */
  readonly Status: 'alive' | 'silent' | 'unknown'
  readonly SecondsSinceAnnouncement: number
  /** The server that made the list. */
  readonly IsSelf: boolean
}

/** A server of the highly available core of this server. */
export interface CoreMember {
  readonly name: string
  readonly serverId: string
  /** A URL. */
  readonly apiAddress: string
  readonly version: string
  readonly role: string
  readonly position: number
  readonly lag: number
  readonly lastSeenMs: number
  readonly isSelf: boolean
}

export interface RegionServersOptions {
  readonly keys: () => Pick<ServerKeys, 'servers' | 'unreachableServers' | 'requestAnnouncements'>
  /** Without a shared bus there are no other servers. */
  readonly hasOthers: boolean
  /** To NATS. */
  readonly isConnected: () => boolean
  readonly self: () => Omit<
    ServerMember,
    'IsSelf' | 'Lag' | 'Position' | 'Role' | 'SecondsSinceAnnouncement' | 'Status'
  >
  /** Undefined without high availability. */
  readonly coreMembers?: () => Promise<readonly CoreMember[]> | undefined
}

export class RegionServers {
  readonly #options: RegionServersOptions

  constructor(options: RegionServersOptions) {
    this.#options = options
  }

  /** Sorted by name, this server first among equals. Takes up to two seconds if a server does not respond. */
  async list(): Promise<ServerMember[]> {
    const { hasOthers, self } = this.#options
    const own: ServerMember = {
      ...self(),
      ...NO_ROLE,
      IsSelf: true,
      SecondsSinceAnnouncement: 0,
      Status: 'alive',
    }
    // Without its list of members, the servers are listed without their roles.
    const ofCore = this.#options.coreMembers?.()?.catch(() => []) ?? []
    const others = hasOthers ? await this.#others(own.ID) : []
    return withRoles([own, ...others], await ofCore).sort((a, b) => (a.Name === b.Name ? 0 : a.Name < b.Name ? -1 : 1))
  }

  async #others(ownId: string): Promise<ServerMember[]> {
    const keys = this.#options.keys()
    const requestedAtMs = performance.now()
    const isAnswer = ({ announcedAtMs }: KnownServer) => announcedAtMs >= requestedAtMs - DEBOUNCE_MS
    keys.requestAnnouncements()
    const known = () =>
      [...keys.servers(false), ...keys.unreachableServers()].filter(({ serverId }) => serverId !== ownId)
    // At least one interval: the request reaches servers that this one does not know.
    do await sleep(Math.min(POLL_MS, TIMINGS.heartbeatMs))
    while (!known().every(isAnswer) && performance.now() - requestedAtMs < ANSWER_TIMEOUT_MS)
    const answered = new Set(
      known()
        .filter(isAnswer)
        .map(({ key }) => key),
    )
    const newest = newestRuns(known())
    // A server that has restarted is known with its earlier runs, which do not respond.
    return known()
      .filter((server) => isAnswer(server) || (!answered.has(server.key) && newest.has(server)))
      .map((server) => memberOf(server, this.#statusOf(isAnswer(server))))
  }

  #statusOf(hasAnswered: boolean): ServerMember['Status'] {
    if (hasAnswered) return 'alive'
    return this.#options.isConnected() ? 'silent' : 'unknown'
  }
}

const NO_ROLE = { Role: '', Position: 0, Lag: 0 }

/** Adds the roles. A member of the core that no longer announces itself is listed until it is removed. Names are unique in a core. */
function withRoles(servers: readonly ServerMember[], members: readonly CoreMember[]): ServerMember[] {
  const byName = new Map(members.map((member) => [member.name, member]))
  const named = new Set(servers.map(({ Name }) => Name))
  const known = servers.map((server) => {
    const member = server.HasCore ? byName.get(server.Name) : undefined
    return member ? { ...server, Role: member.role, Position: member.position, Lag: member.lag } : server
  })
  return [...known, ...members.filter(({ name }) => !named.has(name)).map(unannounced)]
}

function unannounced({ apiAddress, isSelf, lag, lastSeenMs, name, position, role, serverId, version }: CoreMember) {
  return {
    ID: serverId,
    Name: name,
    Version: version,
    Address: URL.parse(apiAddress)?.host ?? '',
    HasCore: true,
    CoreState: '',
    ClusterID: '',
    Role: role,
    Position: position,
    Lag: lag,
    Status: role === 'lost' ? ('silent' as const) : ('alive' as const),
    SecondsSinceAnnouncement: Math.max(0, Math.round((Date.now() - lastSeenMs) / 1000)),
    IsSelf: isSelf,
  }
}

/** The last run of each key. */
function newestRuns(servers: readonly KnownServer[]): ReadonlySet<KnownServer> {
  const newest = new Map<string, KnownServer>()
  for (const server of servers) {
    const other = newest.get(server.key)
    if (!other || server.announcedAtMs >= other.announcedAtMs) newest.set(server.key, server)
  }
  return new Set(newest.values())
}

function memberOf(server: KnownServer, status: ServerMember['Status']): ServerMember {
  const {
    address = '',
    announcedAtMs,
    clusterId = '',
    coreState = '',
    hasCore,
    name = '',
    serverId,
    version = '',
  } = server
  return {
    ID: serverId,
    Name: name,
    Version: version,
    Address: address,
    HasCore: hasCore,
    CoreState: coreState,
    ClusterID: clusterId,
    ...NO_ROLE,
    Status: status,
    SecondsSinceAnnouncement: Math.round((performance.now() - announcedAtMs) / 1000),
    IsSelf: false,
  }
}
