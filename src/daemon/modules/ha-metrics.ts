/** Metrics and readiness check of high availability. */
import type { Check, CheckResult } from '../../telemetry/readiness.ts'
import { type Family, single } from '../../telemetry/metric.ts'
import { haFault, type HaMember, type HaRole, type HaSide } from '../../secrets/ha-endpoints/ha-side.ts'
import type { SecretsCore } from '../../secrets/core.ts'

const ROLES: readonly HaMember['role'][] = ['active', 'standby', 'sealed', 'uninitialized', 'lost']

export class HaMetrics {
  readonly #ha: HaSide
  #members: readonly HaMember[] = []

  constructor(ha: HaSide) {
    this.#ha = ha
  }

  /** Reads the members, which are not known without waiting. Never rejects: an unreadable list removes its metrics only. */
  async refresh(): Promise<void> {
    this.#members = await this.#ha.members().catch(() => [])
  }

  families(): Family[] {
    const { active, applied, committed, missingReplicas, role, takeovers, trouble } = this.#ha
    const self = this.#members.find(({ isSelf }) => isSelf)
    return [
      single('gauge', 'outpost.ha.active', '1 while this server is the active one, else 0.', Number(role === 'active')),
      single(
        'gauge',
        'outpost.ha.has_active',
        '1 while this server knows an active server, else 0.',
        Number(active !== undefined),
      ),
      single(
        'gauge',
        'outpost.ha.trouble',
        '1 while this server cannot serve or take over, else 0.',
        Number(trouble !== undefined),
      ),
      single(
        'gauge',
        'outpost.ha.unapplied_messages',
        'Messages of the commit stream that this server has not applied.',
        Math.max(0, committed - applied),
      ),
      single(
        'gauge',
        'outpost.ha.missing_replicas',
        'NATS servers that do not store the commit stream at present.',
        missingReplicas.length,
      ),
      single('counter', 'outpost.ha.takeovers', 'Times that this server became active.', takeovers),
      ...(self
        ? [
            single(
              'gauge',
              'outpost.ha.lag_entries',
              'Number of log rows by which this server is behind the active one.',
              self.lag,
            ),
          ]
        : []),
      ...(this.#members.length === 0 ? [] : [this.#byRole()]),
    ]
  }

  #byRole(): Family {
    const count = (role: HaMember['role']) => this.#members.filter((member) => member.role === role).length
    return {
      name: 'outpost.ha.members',
      kind: 'gauge',
      help: 'Servers of the cluster, by role.',
      points: ROLES.map((role) => ({ labels: { role }, value: count(role) })),
    }
  }
}

/** None without high availability, and while the server is sealed: the check `seal` has the reason. */
export function haChecks(core: Pick<SecretsCore, 'isSealed' | 'options'> | undefined): Check[] {
  const { ha } = core?.options ?? {}
  return ha && !core?.isSealed ? [{ name: 'ha', now: () => haState(ha), warnings: () => haWarnings(core) }] : []
}

/** A standby is ready: it forwards requests. */
function haState(ha: HaSide): CheckResult {
  const fault = haFault(ha)
  if (fault !== undefined) return { ok: false, reason: fault }
  if (ha.role === 'active') return { ok: true, reason: 'active' }
  const { active } = ha
  return { ok: true, reason: active ? `standby, "${active.name}" is active` : 'standby, waiting for an active server' }
}

/** Nothing fails without one server or one NATS server, but the loss of another one may stop the cluster. */
export function haWarnings(core: Pick<SecretsCore, 'isSealed' | 'options'> | undefined): string[] {
  const { lostMembers = [], missingReplicas = [], sealedMembers = [] } = core?.options.ha ?? {}
  const lost = lostMembers.map(
    ({ lastSeenMs, name }) =>
      `server "${name}" of the secrets core is lost, last report ${new Date(lastSeenMs).toISOString()}: start it, or remove it with "outpost operator members remove ${name}"`,
  )
  const sealed = sealedMembers.map(
    ({ name }) => `server "${name}" of the secrets core is sealed and cannot take over: unseal it`,
  )
  const missing = missingReplicas.map(
    ({ reason, server }) =>
      `NATS server "${server}" does not store the commit stream (${reason}): check that it runs, that its disk has space and that JetStream is enabled; after a full disk, restart it`,
  )
  return [...lost, ...sealed, ...missing]
}

/** The role among the servers of the cluster; undefined without high availability and while sealed. */
export function haModeOf(core: Pick<SecretsCore, 'isSealed' | 'options'> | undefined): HaRole | undefined {
  return core?.isSealed ? undefined : core?.options.ha?.role
}
