/** High availability of the secrets core: which server is active, and the others. */
import { ApiError, secrets, sendJson } from '../../api/client.ts'

/** From `sys/leader`, which needs no token. */
interface Leader {
  readonly ha_enabled: boolean
  readonly is_self: boolean
  readonly leader_address: string
}

export interface HaMember {
  readonly name: string
  readonly api_address: string
  readonly version: string
  /** `active`, `standby`, `sealed`, `uninitialized` or `lost`. */
  readonly role: string
  readonly position: number
  /** Commits that it has not applied yet. */
  readonly lag: number
  readonly last_seen: string
  /** Of the server that answered, which is the active one: a standby forwards the request. */
  readonly is_self: boolean
}

/** Whether it is the server of the page; `pageHost` is the name and port in its address. */
export function isServerOfPage({ api_address, is_self, role }: HaMember, isActive: boolean, pageHost: string): boolean {
  if (isActive) return is_self
  return role !== 'active' && URL.canParse(api_address) && new URL(api_address).host === pageHost
}

export interface HaReport {
  readonly activeAddress: string
  readonly isActive: boolean
  /** Undefined if the token may not list them. */
  readonly members: readonly HaMember[] | undefined
}

/** Undefined without high availability, and while the server is sealed. */
export async function readHa(signal: AbortSignal): Promise<HaReport | undefined> {
  const leader = await sendJson<Leader>('/v1/sys/leader', { signal }).catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 503) return undefined
    throw error
  })
  if (!leader?.ha_enabled) return undefined
  return { activeAddress: leader.leader_address, isActive: leader.is_self, members: await readMembers(signal) }
}

async function readMembers(signal: AbortSignal): Promise<readonly HaMember[] | undefined> {
  try {
    const { data } = await secrets<{ readonly members: readonly HaMember[] }>('sys/ha/members', { signal })
    return data.members
  } catch (error) {
    if (error instanceof ApiError && error.isForbidden) return undefined
    throw error
  }
}

export interface HaSummary {
  readonly kind: 'good' | 'warning' | 'bad'
  readonly text: string
}

const LAG_WARNING = 1000

/** Whether another server would take over now. */
export function haSummary({ activeAddress, isActive, members }: HaReport): HaSummary {
  const active = members?.find(({ role }) => role === 'active')
  if (activeAddress === '' && !active) {
    return {
      kind: 'bad',
      text: 'No server is active: requests wait until one takes over. If this persists, check NATS and the seal.',
    }
  }
  const name = active?.name ?? activeAddress
  const first = isActive ? 'This server is active' : `${name} is active; this server forwards requests to it`
  if (!members) return { kind: 'good', text: `${first}.` }
  const standby = members.filter(({ role }) => role === 'standby')
  const others = members.filter(({ role }) => role !== 'standby' && role !== 'active')
  if (standby.length === 0) {
    return { kind: 'bad', text: `${first}. No other server could take over: ${countsOf(others) || 'there is none'}.` }
  }
  const late = standby.find(({ lag }) => lag > LAG_WARNING)
  if (late)
    return {
      kind: 'warning',
      text: `${first}. ${late.name} lacks ${late.lag} commits: check its disk and its connection to NATS.`,
    }
  if (others.length > 0) {
    return { kind: 'warning', text: `${first}, ${standby.length} could take over. Of the others: ${countsOf(others)}.` }
  }
  return { kind: 'good', text: `${first}, ${standby.length} could take over.` }
}

/**
 * The role of the server of the page. Readiness calls each server `active` that is no DR secondary, because a standby forwards requests.
 * Empty while high availability is not known.
 */
export function shownRole(readinessRole: string, ha: HaReport | undefined, isHaKnown: boolean): string {
  if (readinessRole !== 'active') return readinessRole
  if (!isHaKnown) return ''
  return ha && !ha.isActive ? 'standby that forwards requests to the active server' : readinessRole
}

interface AnnouncedServer {
  readonly Name: string
  readonly Address: string
  readonly Status: string
  readonly CoreState: string
}

export interface ServerState {
  readonly status: string
  readonly core: string
}

/**
 * A server in the list of announcements, which may be older than the report of the active server: that one decides about its members.
 */
export function serverState(server: AnnouncedServer, members: readonly HaMember[] | undefined): ServerState {
  const { Address, CoreState, Name, Status } = server
  const isAt = ({ api_address }: HaMember) => api_address === Address || URL.parse(api_address)?.host === Address
  const member = members?.find(isAt) ?? members?.find(({ name }) => name === Name)
  if (!member) return { status: Status, core: CoreState === 'ha_standby' ? 'standby' : CoreState || 'unknown' }
  // A lost server has no state that is known.
  return member.role === 'lost' ? { status: 'lost', core: 'lost' } : { status: Status, core: member.role }
}

function countsOf(members: readonly HaMember[]): string {
  return members.map(({ name, role }) => `${name} is ${role}`).join(', ')
}
