/**
 * The TTL of a token: what was requested, within the limits of the mount, the token and its role. The limits of the mount come from
 * `mounts/mount-ttl.ts`: for those that a mount does not set, 32 days apply.
 */
import { shortDuration } from '../../platform/duration.ts'
import { Rejection } from '../../engines/framework/engine.ts'

export interface TtlRequest {
  /** 0 if the caller requested none. */
  readonly requestedTtlSeconds: number
  /** 0 for a token that is not periodic. */
  readonly periodSeconds: number
  /** Limit of the token itself, from its creation; 0 for none. */
  readonly explicitMaxTtlSeconds: number
  /** Default of the mount. */
  readonly defaultTtlSeconds: number
  /** Limit of the mount, from the token's creation. */
  readonly maxTtlSeconds: number
  readonly createdAtMs: number
}

export interface GrantedTtl {
  /** From now. */
  readonly ttlSeconds: number
  readonly warnings: readonly string[]
}

/** Throws a Rejection (400) for a token that has reached its maximum TTL. */
export function grantTtl(request: TtlRequest, nowMs: number): GrantedTtl {
  const { createdAtMs, defaultTtlSeconds, explicitMaxTtlSeconds, maxTtlSeconds, periodSeconds } = request
  const { requestedTtlSeconds } = request
  const limitSeconds = smallerLimit(explicitMaxTtlSeconds, maxTtlSeconds)
  const ageSeconds = Math.max(0, (nowMs - createdAtMs) / 1000)
  if (periodSeconds > 0) {
    // Each renewal starts a new period; only an explicit maximum ends the token.
    const period = Math.min(periodSeconds, maxTtlSeconds)
    const warnings = period < periodSeconds ? [cappedWarning('Period', periodSeconds, maxTtlSeconds)] : []
    if (explicitMaxTtlSeconds === 0) return { ttlSeconds: period, warnings }
    return capTtl('Period', period, explicitMaxTtlSeconds - ageSeconds, {
      limitSeconds: explicitMaxTtlSeconds,
      warnings,
    })
  }
  const ttlSeconds = requestedTtlSeconds > 0 ? requestedTtlSeconds : Math.min(defaultTtlSeconds, limitSeconds)
  return capTtl('TTL', ttlSeconds, limitSeconds - ageSeconds, { limitSeconds, warnings: [] })
}

function capTtl(
  name: string,
  ttlSeconds: number,
  remainingSeconds: number,
  { limitSeconds, warnings }: { readonly limitSeconds: number; readonly warnings: readonly string[] },
): GrantedTtl {
  const remaining = Math.floor(remainingSeconds)
  if (remaining <= 0) throw new Rejection(400, 'past the max TTL, cannot renew')
  if (ttlSeconds <= remaining) return { ttlSeconds, warnings }
  return { ttlSeconds: remaining, warnings: [...warnings, cappedWarning(name, ttlSeconds, limitSeconds)] }
}

function cappedWarning(name: string, ttlSeconds: number, limitSeconds: number): string {
  const [given, limit] = [ttlSeconds, limitSeconds].map((seconds) => shortDuration(seconds * 1000))
  return `${name} of "${given}" exceeded the effective max_ttl of "${limit}"; ${name} value is capped accordingly`
}

/** The maximum TTL of a login's token: that of the user or role within that of the mount. A periodic token has the mount's only. */
export function loginMaxTtlSeconds(
  { maxTtlSeconds, periodSeconds }: { readonly maxTtlSeconds: number; readonly periodSeconds: number },
  mountMaxTtlSeconds: number,
): number {
  return periodSeconds > 0 ? mountMaxTtlSeconds : smallerLimit(maxTtlSeconds, mountMaxTtlSeconds)
}

/** The smaller of two limits, of which 0 means none. */
export function smallerLimit(a: number, b: number): number {
  return a === 0 || b === 0 ? a + b : Math.min(a, b)
}
