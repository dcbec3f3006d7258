/**
 * Detects replayed calls. A server numbers its calls to a node, and NATS delivers those of one connection in order; a few may still
 * overtake each other. So the guard stores the highest number of each server and a sliding window of used ones: a few hundred
 * bytes for each server, for any number of calls.
 */
const WINDOW = 2048
const ISSUERS_MAX = 1024

interface Issuer {
  highest: number
  /** One bit for each of the last `WINDOW` numbers. */
  readonly used: Uint8Array
  usedAtMs: number
}

export class ReplayGuard {
  readonly #issuers = new Map<string, Issuer>()
  readonly #keepMs: number
  readonly #now: () => number

  /** `keepMs` must exceed the validity of an assertion. `now` is a monotonic clock. */
  constructor(keepMs: number, now: () => number = () => performance.now()) {
    this.#keepMs = keepMs
    this.#now = now
  }

  /** Marks the number as used. `full`: more than `ISSUERS_MAX` issuers have called within `keepMs`. */
  use(issuerName: string, sequence: number): 'fresh' | 'used' | 'full' {
    const issuer = this.#issuers.get(issuerName) ?? this.#admit(issuerName)
    if (!issuer) return 'full'
    issuer.usedAtMs = this.#now()
    if (sequence <= issuer.highest - WINDOW) return 'used'
    if (sequence > issuer.highest) {
      const from = Math.max(issuer.highest + 1, sequence - WINDOW + 1)
      for (let number = from; number < sequence; number++) setBit(issuer.used, number, false)
      issuer.highest = sequence
    } else if (bitOf(issuer.used, sequence)) return 'used'
    setBit(issuer.used, sequence, true)
    return 'fresh'
  }

  #admit(name: string): Issuer | undefined {
    if (this.#issuers.size >= ISSUERS_MAX) {
      const endMs = this.#now() - this.#keepMs
      for (const [old, { usedAtMs }] of this.#issuers) if (usedAtMs < endMs) this.#issuers.delete(old)
      if (this.#issuers.size >= ISSUERS_MAX) return undefined
    }
    const issuer = { highest: 0, used: new Uint8Array(WINDOW / 8), usedAtMs: 0 }
    this.#issuers.set(name, issuer)
    return issuer
  }
}

function bitOf(bits: Uint8Array, number: number): boolean {
  const at = number % WINDOW
  return ((bits[at >> 3] ?? 0) & (1 << (at & 7))) !== 0
}

function setBit(bits: Uint8Array, number: number, isSet: boolean): void {
  const at = number % WINDOW
  const before = bits[at >> 3] ?? 0
  bits[at >> 3] = isSet ? before | (1 << (at & 7)) : before & ~(1 << (at & 7))
}
