/** The TTL limits of a mount, for its tokens and leases. */
import { Rejection } from '../../engines/framework/engine.ts'
import { FieldError, secondsOf } from '../../engines/framework/fields.ts'
import type { MountConfig } from './mount-record.ts'

/** 32 days: the limit for everything that expires, unless a mount sets its own. */
export const SYSTEM_MAX_TTL_SECONDS = 768 * 3600
/** Characters of a malformed value that an error repeats. */
const SHOWN_LENGTH_MAX = 64

export interface TtlLimits {
  /** Applies if no TTL was requested. */
  readonly defaultTtlSeconds: number
  readonly maxTtlSeconds: number
}

/** The limits of the mount, or those of the system for a limit that it does not set. */
export function ttlLimitsOf({ defaultLeaseSeconds, maxLeaseSeconds }: MountConfig): TtlLimits {
  const maxTtlSeconds = maxLeaseSeconds === 0 ? SYSTEM_MAX_TTL_SECONDS : maxLeaseSeconds
  const defaultTtlSeconds = defaultLeaseSeconds === 0 ? SYSTEM_MAX_TTL_SECONDS : defaultLeaseSeconds
  return { defaultTtlSeconds: Math.min(defaultTtlSeconds, maxTtlSeconds), maxTtlSeconds }
}

/** Seconds of a TTL setting; undefined if not given, 0 for the system's. Throws a Rejection (400). */
export function ttlSettingSeconds(given: unknown, which: 'default' | 'max'): number | undefined {
  if (given === undefined || given === null || given === '') return undefined
  if (given === 'system') return 0
  try {
    return secondsOf(given)
  } catch (error) {
    if (!(error instanceof FieldError)) throw error
    const shown =
      typeof given === 'string' || typeof given === 'number' ? String(given).slice(0, SHOWN_LENGTH_MAX) : 'that'
    throw new Rejection(400, `unable to parse ${which} TTL of ${shown}: ${error.message}`)
  }
}

/** Throws a Rejection (400) for a default that is longer than the maximum. */
export function checkTtlSettings({ defaultLeaseSeconds, maxLeaseSeconds }: MountConfig): void {
  if (maxLeaseSeconds > 0 && defaultLeaseSeconds > maxLeaseSeconds) {
    throw new Rejection(400, 'given default lease TTL greater than given max lease TTL')
  }
  if (maxLeaseSeconds === 0 && defaultLeaseSeconds > SYSTEM_MAX_TTL_SECONDS) {
    throw new Rejection(400, `given default lease TTL greater than system max lease TTL of ${SYSTEM_MAX_TTL_SECONDS}`)
  }
}
