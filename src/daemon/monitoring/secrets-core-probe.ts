/**
 * Readiness of a server without a secrets core (`server { secrets = false }`): it serves requests for secrets only while a server with the
 * core responds and its core is active. The health of the core is requested over NATS, like a forwarded request.
 */
import type { CheckResult } from '../../telemetry/readiness.ts'
import { STARTING } from '../../telemetry/readiness.ts'
import type { WholeAnswer } from '../../platform/operation.ts'

const PROBE_INTERVAL_MS = 2000
/** Longer than pauses of a loaded server. Together with the interval, shorter than the usual timeouts of load balancers. */
const PROBE_TIMEOUT_MS = 4000
/**
 * A DR pair in one region has two servers with a core. A request goes to the standby while the active one does not respond, as during its
 * restart. So a standby that answers is reported only if the active one has not answered for this time.
 */
const ACTIVE_VALID_MS = 30_000

export interface SecretsCoreProbeOptions {
  /** Requests `sys/health` of a server with the core. Rejects if none answers. */
  readonly requestHealth: (signal: AbortSignal) => Promise<WholeAnswer>
  /** Names of the servers with a core that have announced themselves. */
  readonly coreNames: () => readonly string[]
  readonly isConnected: () => boolean
}

export class SecretsCoreProbe {
  readonly #options: SecretsCoreProbeOptions
  readonly #stopping = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #result: CheckResult = { ok: false, reason: STARTING }
  #hasBeenConnected = false
  #activeAtMs = Number.NEGATIVE_INFINITY

  constructor(options: SecretsCoreProbeOptions) {
    this.#options = options
  }

  start(): void {
    void this.#run()
  }

  stop(): void {
    this.#stopping.abort()
    clearTimeout(this.#timer)
  }

  /** For the check `secrets_core`. */
  get state(): CheckResult {
    if (this.#options.isConnected()) {
      this.#hasBeenConnected = true
      return this.#result
    }
    // Outdated after the next connection, until the core has responded again.
    if (this.#hasBeenConnected) {
      this.#result = { ok: false, reason: 'connected to NATS again, requesting the state of the secrets core' }
    }
    return { ok: false, reason: 'not connected to NATS' }
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping
    await this.#probe()
    if (!signal.aborted) this.#timer = setTimeout(() => void this.#run(), PROBE_INTERVAL_MS).unref()
  }

  async #probe(): Promise<void> {
    const { coreNames, isConnected, requestHealth } = this.#options
    const known = coreNames().map((name) => `"${name}"`)
    const core = known.length === 0 ? 'the secrets core' : `the secrets core of server ${known.join(' or ')}`
    try {
      const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(PROBE_TIMEOUT_MS)])
      const health = healthOf(await requestHealth(signal))
      const fault = faultOf(health, core)
      const nowMs = performance.now()
      if (fault === undefined) this.#activeAtMs = nowMs
      else if (isDrSecondary(health) && nowMs - this.#activeAtMs < ACTIVE_VALID_MS) return
      this.#result = fault === undefined ? { ok: true, reason: `${core} is active` } : { ok: false, reason: fault }
    } catch {
      if (!isConnected()) return
      const next = 'start it, or restore its connection to NATS'
      const which = known.length === 0 ? 'no server with a secrets core is connected' : `${core} does not respond`
      this.#result = { ok: false, reason: `${which}, next: ${next}` }
    }
  }
}

type Health = Readonly<Record<string, unknown>>

/** Throws unless the body is the JSON of `sys/health`. */
function healthOf({ body = '' }: WholeAnswer): Health {
  const parsed: unknown = JSON.parse(typeof body === 'string' ? body : Buffer.from(body).toString('utf8'))
  if (typeof parsed !== 'object' || parsed === null || !('sealed' in parsed)) throw new TypeError('no health')
  return { ...parsed }
}

function isDrSecondary({ replication_dr_mode: mode }: Health): boolean {
  return mode === 'secondary' || mode === 'bootstrapping'
}

/** Undefined for an active core. */
function faultOf(health: Health, core: string): string | undefined {
  if (health['initialized'] !== true) return `${core} is not initialized, next: outpost operator init on that server`
  if (health['sealed'] !== false) return `${core} is sealed, next: outpost operator unseal on that server`
  if (isDrSecondary(health)) return `${core} is a DR secondary, its primary does not respond in this region`
  if (health['fenced'] === true) return `${core} is fenced: ${String(health['fence_detail'])}`
  // A standby of a highly available core forwards requests.
  return health['standby'] === true && health['ha_connection_healthy'] !== true ? `${core} is not active` : undefined
}
