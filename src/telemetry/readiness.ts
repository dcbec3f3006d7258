/**
 * Whether this process is ready to do its work, and if not, why: one list of checks, which `/v1/agent/ready`, the figures,
 * the status text of systemd, `outpost status` and the log all show. What a check knows at any time is asked when
 * it is shown; what has to be looked for (the disks) is refreshed once an interval, and before `/v1/agent/ready` answers.
 */
import type { Logger } from '../platform/log.ts'
import { handle, WholeAnswer } from '../platform/operation.ts'
import { queryBoolean, schema } from '../platform/schema.ts'
import type { AnyFamily } from './metric.ts'

const REFRESH_MS = 2000
/** Callers within this time share one look. */
const FRESH_MS = 250

/** The reason of a check that fails because the start is not over. */
export const STARTING = 'starting'

/** What a check says now. */
export interface Outcome {
  readonly ok: boolean
  /** In words for an operator, also where it is ok. Never a secret and never a path: everybody may read it. */
  readonly reason: string
}

export interface Check {
  /** `listening`, `disk`, `nats`, `storage`, `seal`, `audit`, `roster`, `secrets-login`. */
  readonly name: string
  readonly now: () => Outcome
}

export interface ReadinessReport {
  /** Every check is ok. */
  readonly ready: boolean
  /** A standby is healthy and serves no requests until it is promoted. */
  readonly role: 'active' | 'standby'
  readonly checks: readonly { readonly name: string; readonly state: 'ok' | 'failing'; readonly reason: string }[]
  /** What keeps nobody from working and should be changed all the same. */
  readonly warnings: readonly string[]
}

export interface ReadinessOptions {
  /** Which checks there are, which a reload may change. */
  readonly checks: () => readonly Check[]
  readonly warnings: () => readonly string[]
  readonly isStandby?: () => boolean
  /** Looks at what is not known at any time. Must not reject. */
  readonly refresh: () => Promise<void>
  /** Called when the text of `summary` has changed. */
  readonly onChange: () => void
  readonly logger: Logger
}

export class Readiness {
  readonly #options: ReadinessOptions
  #timer: NodeJS.Timeout | undefined
  #refreshing: Promise<void> | undefined
  #refreshedAtMs = Number.NEGATIVE_INFINITY
  #isStopped = false
  /** The names of the checks that fail, as they were said last. */
  #said = ''

  constructor(options: ReadinessOptions) {
    this.#options = options
  }

  /** Begins to look, once an interval. Never keeps the process alive. */
  start(): void {
    this.#timer ??= setInterval(() => void this.refresh(), REFRESH_MS).unref()
    void this.refresh()
  }

  /** What was being looked at is not told any more: those who answer may have closed. */
  stop(): void {
    this.#isStopped = true
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  report(): ReadinessReport {
    const checks = this.#options.checks().map(({ name, now }) => {
      const { ok, reason } = outcomeOf(now)
      return { name, state: ok ? ('ok' as const) : ('failing' as const), reason }
    })
    const role = this.#options.isStandby?.() ? 'standby' : 'active'
    return { ready: checks.every(({ state }) => state === 'ok'), role, checks, warnings: this.#options.warnings() }
  }

  /** In one line: `ready`, or `not ready: ` and what fails. */
  get summary(): string {
    const failing = this.#failing()
    if (failing.length === 0) return 'ready'
    return `not ready: ${failing.map(({ name, reason }) => `${name} (${reason})`).join(', ')}`
  }

  #failing(): ReadinessReport['checks'] {
    return this.report().checks.filter(({ state }) => state === 'failing')
  }

  /** Resolves once everything was looked at that has to be looked for; many callers share one look. */
  refresh(): Promise<void> {
    if (performance.now() - this.#refreshedAtMs < FRESH_MS) return Promise.resolve()
    this.#refreshing ??= this.#options.refresh().finally(() => {
      this.#refreshing = undefined
      this.#refreshedAtMs = performance.now()
      if (!this.#isStopped) this.#tellChange()
    })
    return this.#refreshing
  }

  #tellChange(): void {
    const failing = this.#failing()
    // Every start would be told as a fault; what is left of it is told once it is over.
    if (failing.some(({ reason }) => reason === STARTING)) return
    const names = failing.map(({ name }) => name).join(',')
    if (names === this.#said) return
    this.#said = names
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
        help: '1 when every check of /v1/agent/ready is ok, else 0.',
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

/** What a check cannot find out is a fault of its own: the others, and who asks, go on. */
function outcomeOf(now: () => Outcome): Outcome {
  try {
    return now()
  } catch {
    return { ok: false, reason: 'cannot be told, the log of the server says why' }
  }
}

const READY = 200
/** As `sys/health` answers on a DR secondary. */
const STANDBY = 472
const NOT_READY = 503

interface ReadyParts {
  readonly readiness: Readiness
}

/** `/v1/agent/ready`, open to everybody, as probes need it. By its status a load balancer finds the server that serves. */
export const agentReady = handle(
  {
    name: 'agent.ready',
    summary:
      'Whether this process serves requests (200), is a healthy standby (472) or not ready (503), with each check',
    http: ['GET /v1/agent/ready'],
    target: 'server',
    input: schema({
      standbyok: queryBoolean({ description: 'Answer 200 for a healthy standby, too', fallback: false }),
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
