/** High availability without a lease and a stream: a test sets the state, and calls are recorded. */
import { Refusal } from '../../src/platform/errors.ts'
import type { HaActive, HaMember, HaRole, HaSide } from '../../src/secrets/ha-endpoints/ha-side.ts'

export const ACTIVE_SINCE_MS = Date.UTC(2026, 0, 2, 3, 4, 5, 678)

export function haMember(name: string, given: Partial<HaMember> = {}): HaMember {
  return {
    name,
    serverId: `id-${name}`,
    apiAddress: `http://${name}:4646`,
    version: '1.2.3',
    role: 'standby',
    position: 100,
    lag: 0,
    lastSeenMs: ACTIVE_SINCE_MS,
    isSelf: false,
    ...given,
  }
}

/** The server `s1` of `s1`, `s2` and the lost `s3`. */
export class ScriptedHa implements HaSide {
  role: HaRole = 'active'
  active: HaActive | undefined
  committed = 40
  applied = 38
  takeovers = 0
  trouble: string | undefined
  lostMembers: HaSide['lostMembers'] = []
  sealedMembers: HaSide['sealedMembers'] = []
  missingReplicas: HaSide['missingReplicas'] = []
  list: readonly HaMember[] | Error
  readonly calls: string[] = []

  constructor(activeName: 's1' | 's2' = 's1') {
    this.become(activeName)
    const roleOf = (name: string) => (name === activeName ? 'active' : 'standby')
    this.list = [
      haMember('s1', { role: roleOf('s1'), isSelf: true }),
      haMember('s2', { role: roleOf('s2'), lag: 7 }),
      haMember('s3', { role: 'lost', position: 0 }),
    ]
  }

  become(name: 's1' | 's2', activeSinceMs = ACTIVE_SINCE_MS): void {
    const isSelf = name === 's1'
    this.role = isSelf ? 'active' : 'standby'
    if (isSelf) this.takeovers++
    this.active = {
      name,
      apiAddress: `http://${name}:4646`,
      clusterAddress: `https://${name}:4647`,
      activeSinceMs,
      isSelf,
    }
  }

  async members(): Promise<readonly HaMember[]> {
    if (this.list instanceof Error) throw this.list
    return this.list
  }

  async stepDown(): Promise<void> {
    this.calls.push('stepDown')
    if (this.role !== 'active') throw new Refusal('unavailable', 'this server is not active')
  }

  async removeMember(name: string): Promise<void> {
    this.calls.push(`removeMember ${name}`)
    if (name !== 's3') throw new Refusal('invalid_request', `server "${name}" is alive`)
  }
}
