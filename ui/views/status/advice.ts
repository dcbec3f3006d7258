/** What to do about a failing readiness check, by its name. */

export interface Advice {
  readonly text: string
  /** A view that helps. */
  readonly link?: { readonly title: string; readonly to: string }
  /** A command line that helps. */
  readonly command?: string
}

const ADVICE: Readonly<Record<string, Advice>> = {
  listening: {
    text: 'The process is starting or stopping. If this persists, read its log.',
    command: 'outpost monitor',
  },
  disk: {
    text: 'Free space on the disk of the data directory, or make it writable. Garbage collection removes ended allocations.',
    link: { title: 'Hosts by disk use', to: '/hosts?sort=-disk' },
  },
  nats: { text: 'Check that NATS runs, and the addresses and credentials in the block "nats" of the configuration.' },
  storage: {
    text: 'Do not restart the process before its database files are in place: read the section on storage of the troubleshooting guide.',
    command: 'outpost operator diagnose',
  },
  seal: {
    text: 'Initialize or unseal the secrets core.',
    link: { title: 'Seal', to: '/seal' },
    command: 'outpost operator unseal',
  },
  secrets_core: {
    text: 'No server with an active secrets core responds. Check the servers below.',
    link: { title: 'Seal', to: '/seal' },
  },
  audit: {
    text: 'No audit device can be written, so requests are refused. Check its file and the space on its disk.',
    command: 'outpost audit list',
  },
  roster: { text: 'The server does not know all hosts yet. Wait for one heartbeat; then check NATS.' },
  replication: {
    text: 'Check the connection between the clusters.',
    link: { title: 'Replication', to: '/dr' },
    command: 'outpost operator dr status',
  },
  'secrets-login': { text: 'The agent cannot log in to the secrets core. Check its role and its credentials.' },
}

const DEFAULT: Advice = {
  text: 'The reason says what fails. The diagnosis examines this host.',
  command: 'outpost operator diagnose',
}

export function adviceFor(check: string): Advice {
  return Object.hasOwn(ADVICE, check) ? (ADVICE[check] ?? DEFAULT) : DEFAULT
}

export interface ReadinessCheck {
  readonly name: string
  readonly state: string
  readonly reason: string
  /** Texts of `Readiness.warnings` that belong to this check. */
  readonly warnings?: readonly string[]
}

export interface Readiness {
  readonly ready: boolean
  readonly role: string
  readonly checks: readonly ReadinessCheck[]
  readonly warnings: readonly string[]
}

export type ShownState = 'failing' | 'warning' | 'ok'

const ORDER: readonly ShownState[] = ['failing', 'warning', 'ok']

/** A check with warnings does not fail the process, and is not as it should be. */
export function stateOf({ state, warnings = [] }: ReadinessCheck): ShownState {
  if (state !== 'ok') return 'failing'
  return warnings.length > 0 ? 'warning' : 'ok'
}

/** The worst first. */
export function sortedChecks({ checks }: Readiness): readonly ReadinessCheck[] {
  return checks.toSorted((one, other) => ORDER.indexOf(stateOf(one)) - ORDER.indexOf(stateOf(other)))
}

/** Warnings that belong to no check. */
export function otherWarnings({ checks, warnings }: Readiness): readonly string[] {
  const shown = new Set(checks.flatMap((check) => check.warnings ?? []))
  return warnings.filter((warning) => !shown.has(warning))
}

/** Numbers of equal texts, most first. */
export function countBy<T>(values: readonly T[], textOf: (value: T) => string): readonly (readonly [string, number])[] {
  const counts = new Map<string, number>()
  for (const value of values) counts.set(textOf(value), (counts.get(textOf(value)) ?? 0) + 1)
  return [...counts].toSorted(([, one], [, other]) => other - one)
}
