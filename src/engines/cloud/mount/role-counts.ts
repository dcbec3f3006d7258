/**
 * What the roles of one mount have given, for figures: credentials, sessions that were shared, failures by their kind, and users that were
 * taken back. Roles are made by callers, so their number is bounded here: what is beyond it is counted as `other`.
 */
import { type EngineMetric, Rejection } from '../../framework/engine.ts'

/** Roles with figures of their own. */
const ROLES_MAX = 100
const OTHER = 'other'

const HELP = {
  credentials: 'Credentials of AWS that were given out, by role; shared ones too.',
  shared_sessions: 'Credentials that were a session of AWS which another request had made, by role.',
  failures: 'Credentials of AWS that could not be given, by role and kind.',
  revocations: 'Users of AWS that were to be removed with their lease, by role and result.',
} as const

type Kind = keyof typeof HELP

export class RoleCounts {
  readonly #counts = new Map<
    string,
    { readonly kind: Kind; readonly labels: Readonly<Record<string, string>>; value: number }
  >()
  readonly #roles = new Set<string>()

  add(kind: Kind, role: string, more: Readonly<Record<string, string>> = {}): void {
    if (this.#roles.size < ROLES_MAX) this.#roles.add(role)
    const labels = { role: this.#roles.has(role) ? role : OTHER, ...more }
    const key = JSON.stringify([kind, labels])
    const known = this.#counts.get(key)
    if (known) known.value++
    else this.#counts.set(key, { kind, labels, value: 1 })
  }

  /** Credentials could not be given. */
  failed(role: string, error: unknown): void {
    this.add('failures', role, { kind: kindOf(error) })
  }

  metrics(mount: string): EngineMetric[] {
    return (Object.keys(HELP) as Kind[]).map((kind) => ({
      name: `outpost.cloud.${kind}`,
      help: HELP[kind],
      points: [...this.#counts.values()]
        .filter((each) => each.kind === kind)
        .map(({ labels, value }) => ({ labels: { mount, ...labels }, value })),
    }))
  }
}

/** `outside`: AWS throttles or does not answer. `refused`: by AWS, or by the role. `limited`: too many at once. */
function kindOf(error: unknown): string {
  if (!(error instanceof Rejection)) return 'fault'
  if (error.status === 502) return 'outside'
  return error.status === 429 ? 'limited' : error.status === 503 ? 'given_up' : 'refused'
}
