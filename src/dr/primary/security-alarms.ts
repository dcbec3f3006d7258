/**
 * Signs that the key of a secondary's certificate was stolen, and claims that a sealed primary cannot verify: counted for metrics and
 * the status, and logged at most once in an interval per kind and secondary, because a peer can repeat them.
 */
import type { Logger } from '../../platform/log.ts'

const LOG_INTERVALS_MS = { duplicate: 60_000, proof: 60_000, claim: 3_600_000 } as const

const MESSAGES = {
  duplicate:
    'second connection with the certificate of a connected DR secondary; if it is not yours, revoke the secondary and issue a new activation',
  claim: 'a cluster claims to have replaced this primary; unseal this server, which then verifies the claim',
  proof: 'proof of membership rejected; if the secondary was not promoted, revoke it and issue a new activation',
} as const

export type AlarmKind = keyof typeof MESSAGES

export class SecurityAlarms {
  readonly #logger: Logger
  readonly #counts = new Map<string, number>()
  readonly #loggedMs = new Map<string, number>()

  constructor(logger: Logger) {
    this.#logger = logger
  }

  raise(kind: AlarmKind, id: string, facts: Readonly<Record<string, string>>): void {
    const key = `${kind} ${id}`
    this.#counts.set(key, this.count(kind, id) + 1)
    const nowMs = performance.now()
    if (nowMs - (this.#loggedMs.get(key) ?? Number.NEGATIVE_INFINITY) < LOG_INTERVALS_MS[kind]) return
    this.#loggedMs.set(key, nowMs)
    this.#logger.warn(MESSAGES[kind], { id, ...facts })
  }

  count(kind: AlarmKind, id: string): number {
    return this.#counts.get(`${kind} ${id}`) ?? 0
  }
}
