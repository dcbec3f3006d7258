/** How long a token may live: what was asked for, within what the mount, the token and its role allow. */
import { shortDuration } from '../../platform/duration.ts'
import { Rejection } from '../../engines/framework/engine.ts'

export interface LifeRules {
  /** What it was asked for; 0 for no wish. */
  readonly wishSeconds: number
  /** Of a periodic token, else 0. */
  readonly periodSeconds: number
  /** From its making; 0 for none of its own. */
  readonly explicitMaxSeconds: number
  readonly defaultSeconds: number
  /** Of the mount, from the token's making. */
  readonly maxSeconds: number
  readonly createdAtMs: number
}

export interface Life {
  readonly seconds: number
  readonly warnings: readonly string[]
}

/** Seconds from now. Throws a Rejection (400) where there is no time left to give. */
export function lifeOf(rules: LifeRules, nowMs: number): Life {
  const { createdAtMs, defaultSeconds, explicitMaxSeconds, maxSeconds, periodSeconds, wishSeconds } = rules
  const most = explicitMaxSeconds > 0 ? Math.min(explicitMaxSeconds, maxSeconds) : maxSeconds
  const oldSeconds = Math.max(0, (nowMs - createdAtMs) / 1000)
  if (periodSeconds > 0) {
    // A period begins again with each renewal; only an explicit maximum ends it.
    const period = Math.min(periodSeconds, maxSeconds)
    const warnings = period < periodSeconds ? [exceeded('Period', periodSeconds, maxSeconds)] : []
    if (explicitMaxSeconds === 0) return { seconds: period, warnings }
    return capped('Period', period, explicitMaxSeconds, oldSeconds, warnings)
  }
  return capped('TTL', wishSeconds > 0 ? wishSeconds : Math.min(defaultSeconds, most), most, oldSeconds, [])
}

function capped(name: string, wanted: number, most: number, oldSeconds: number, warnings: readonly string[]): Life {
  const left = Math.floor(most - oldSeconds)
  if (left <= 0) throw new Rejection(400, 'past the max TTL, cannot renew')
  if (wanted <= left) return { seconds: wanted, warnings }
  return { seconds: left, warnings: [...warnings, exceeded(name, wanted, most)] }
}

function exceeded(name: string, wanted: number, most: number): string {
  const [given, limit] = [wanted, most].map((seconds) => shortDuration(seconds * 1000))
  return `${name} of "${given}" exceeded the effective max_ttl of "${limit}"; ${name} value is capped accordingly`
}

/** What renewals reach: the mount's, or less. A periodic token has no such end. */
export function mostSeconds(
  { maxTtlSeconds, periodSeconds }: { readonly maxTtlSeconds: number; readonly periodSeconds: number },
  mountSeconds: number,
): number {
  return periodSeconds > 0 || maxTtlSeconds === 0 ? mountSeconds : Math.min(maxTtlSeconds, mountSeconds)
}
