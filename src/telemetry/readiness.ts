/**
 * Readiness of this process: one list of checks for `/v1/agent/ready`, metrics, the status text of systemd, `outpost status` and
 * the log. Checks read known state when they are shown. Disks are measured once an interval, and before `/v1/agent/ready` answers.
 */
import type { Logger } from '../platform/log.ts'
import { handle, WholeAnswer } from '../platform/operation.ts'
import { queryBoolean, schema } from '../platform/schema.ts'
import type { AnyFamily } from './metric.ts'

const REFRESH_MS = 2000
/** Requests within this time share one measurement. */
const FRESH_MS = 250

/** Reason of a check that fails during the start. */
export const STARTING = 'starting'

/** Current result of a check. */
export interface CheckResult {
  readonly ok: boolean
  /** Text for an operator, also if `ok`. Never a secret or a path: it is readable without a token. */
  readonly reason: string
}

export interface Check {
  /** `listening`, `disk`, `nats`, `storage`, `seal`, `secrets_core`, `audit`, `roster`, `ha`, `replication`, `secrets-login`. */
  readonly name: string
  readonly now: () => CheckResult
  /** The warnings of the report that belong to this check. */
  readonly warnings?: () => readonly string[]
}

/**
 * `standby`: healthy, and serves no requests until it is promoted. `fenced`: a primary that serves no requests, because it was replaced or
 * is isolated.
 */
export type ReadinessRole = 'active' | 'standby' | 'fenced'

export type HaMode = 'active' | 'standby'

interface CheckReport {
  readonly name: string
  readonly state: 'ok' | 'failing'
  readonly reason: string
  /** Those of the report that belong to this check. Absent without any. */
  readonly warnings?: readonly string[]
}

export interface ReadinessReport {
  /** All checks are ok. */
  readonly ready: boolean
  readonly role: ReadinessRole
  /** Role among the servers of a highly available core. A standby forwards requests, so it is ready. Absent without one. */
  readonly ha_mode?: HaMode
  readonly checks: readonly CheckReport[]
  /** Conditions that do not affect service but need a change. */
  readonly warnings: readonly string[]
}

export interface ReadinessOptions {
  /** The checks; a reload may change them. */
  readonly checks: () => readonly Check[]
  readonly warnings: () => readonly string[]
  /** Default: active. */
  readonly role?: () => ReadinessRole
  /** Undefined without high availability, and while sealed. */
  readonly haMode?: () => HaMode | undefined
  /** Measures what is not known otherwise. Must not reject. */
  readonly refresh: () => Promise<void>
  /** Called when `summary` changes. */
  readonly onChange: () => void
  readonly logger: Logger
}

export class Readiness {
  readonly #options: ReadinessOptions
  #timer: NodeJS.Timeout | undefined
  #refreshing: Promise<void> | undefined
  #refreshedAtMs = Number.NEGATIVE_INFINITY
  #isStopped = false
  /** Names of the failing checks in the last log line. */
  #logged = ''

  constructor(options: ReadinessOptions) {
    this.#options = options
  }

  /** Starts the periodic measurement. Does not keep the process alive. */
  start(): void {
    this.#timer ??= setInterval(() => void this.refresh(), REFRESH_MS).unref()
    void this.refresh()
  }

  /** Ends reporting: the sources may be closed. */
  stop(): void {
    this.#isStopped = true
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  report(): ReadinessReport {
    const checks = this.#options.checks().map(({ name, now, warnings }): CheckReport => {
      const { ok, reason } = resultOf(now)
      const own = warnings?.() ?? []
      return { name, state: ok ? 'ok' : 'failing', reason, ...(own.length > 0 && { warnings: own }) }
    })
    const role = this.#options.role?.() ?? 'active'
    const mode = this.#options.haMode?.()
    return {
      ready: checks.every(({ state }) => state === 'ok'),
      role,
      ...(mode && { ha_mode: mode }),
      checks,
      warnings: this.#options.warnings(),
    }
  }

  /** `ready`, or `not ready: ` and the failing checks. */
  get summary(): string {
    const failing = this.#failing()
    if (failing.length === 0) return 'ready'
    return `not ready: ${failing.map(({ name, reason }) => `${name} (${reason})`).join(', ')}`
  }

  #failing(): ReadinessReport['checks'] {
    return this.report().checks.filter(({ state }) => state === 'failing')
  }

  /** Resolves after a measurement; concurrent calls share one. */
  refresh(): Promise<void> {
    if (performance.now() - this.#refreshedAtMs < FRESH_MS) return Promise.resolve()
    this.#refreshing ??= this.#options.refresh().finally(() => {
      this.#refreshing = undefined
      this.#refreshedAtMs = performance.now()
      if (!this.#isStopped) this.#reportChange()
    })
    return this.#refreshing
  }

  #reportChange(): void {
    const failing = this.#failing()
    // A start is not a failure; checks that still fail are reported after it.
    if (failing.some(({ reason }) => reason === STARTING)) return
    const names = failing.map(({ name }) => name).join(',')
    if (names === this.#logged) return
    this.#logged = names
    const { logger, onChange } = this.#options
    if (names === '') logger.info('ready')
    else logger.warn('not ready', { reason: this.summary.slice('not ready: '.length) })
    onChange()
  }

  families(): AnyFamily[] {
    const { checks, ready } = this.report()
    return [
      {
        name: 'outpost.ready',
        kind: 'gauge',
        help: '1 if all checks of /v1/agent/ready are ok, else 0.',
        points: [{ value: Number(ready) }],
      },
      {
        name: 'outpost.ready_check',
        kind: 'gauge',
        help: 'One check of /v1/agent/ready: 1 ok, 0 failing.',
        points: checks.map(({ name, state }) => ({ labels: { check: name }, value: Number(state === 'ok') })),
      },
    ]
  }
}

/** A check that throws fails; the others are still reported. */
function resultOf(now: () => CheckResult): CheckResult {
  try {
    return now()
  } catch {
    return { ok: false, reason: 'check failed, see the log of the server' }
  }
}

const READY = 200
/** As `sys/health` answers on a DR secondary. */
const STANDBY = 472
const NOT_READY = 503

interface ReadyParts {
  readonly readiness: Readiness
}

/** `/v1/agent/ready`. It needs no token. A load balancer finds the active server by the status. */
export const agentReady = handle(
  {
    name: 'agent.ready',
    summary:
      'Read the readiness checks: 200 if this process serves requests, 472 for a healthy standby, 503 if not ready',
    http: ['GET /v1/agent/ready'],
    target: 'server',
    input: schema({
      standbyok: queryBoolean({ description: 'Respond with 200 for a healthy standby as well', fallback: false }),
    }),
    output: 'answer',
    errorFormat: 'plain',
    crossOrigin: 'configured',
    open: true,
    authorize: () => undefined,
  },
  ({ readiness }: ReadyParts) => ({
    async run({ standbyok }) {
      await readiness.refresh()
      const report = readiness.report()
      const headers = { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' }
      const healthy = report.role === 'standby' && !standbyok ? STANDBY : READY
      return new WholeAnswer(report.ready ? healthy : NOT_READY, headers, `${JSON.stringify(report)}\n`)
    },
  }),
)
