/** How long what a mount gives out is good for. */
import { Rejection } from '../../engines/framework/engine.ts'
import { FieldError, secondsOf } from '../../engines/framework/fields.ts'
import type { MountConfig } from './mount-record.ts'

/** 32 days: of mounts that say nothing of their own. */
export const SYSTEM_LEASE_SECONDS = 768 * 3600
/** A longer text is no duration, and is not repeated to its sender. */
const SHOWN_MAX = 64

export interface LeaseTerms {
  /** Of what nobody asked a term for. */
  readonly defaultSeconds: number
  /** Nothing is good for longer. */
  readonly maxSeconds: number
}

/** The terms of tokens and leases of a mount: its own where it has any, else the system's. */
export function leaseTerms({ defaultLeaseSeconds, maxLeaseSeconds }: MountConfig): LeaseTerms {
  const maxSeconds = maxLeaseSeconds === 0 ? SYSTEM_LEASE_SECONDS : maxLeaseSeconds
  const defaultSeconds = defaultLeaseSeconds === 0 ? SYSTEM_LEASE_SECONDS : defaultLeaseSeconds
  return { defaultSeconds: Math.min(defaultSeconds, maxSeconds), maxSeconds }
}

/** Seconds of a term that a caller gave; undefined for none, 0 for the system's. Throws a Rejection (400). */
export function termOf(given: unknown, which: 'default' | 'max'): number | undefined {
  if (given === undefined || given === null || given === '') return undefined
  if (given === 'system') return 0
  try {
    return secondsOf(given)
  } catch (error) {
    if (!(error instanceof FieldError)) throw error
    const shown = typeof given === 'string' || typeof given === 'number' ? String(given).slice(0, SHOWN_MAX) : 'that'
    throw new Rejection(400, `unable to parse ${which} TTL of ${shown}: ${error.message}`)
  }
}

/** Throws a Rejection (400) for terms of which the shorter is longer. */
export function checkTerms({ defaultLeaseSeconds, maxLeaseSeconds }: MountConfig): void {
  if (maxLeaseSeconds > 0 && defaultLeaseSeconds > maxLeaseSeconds) {
    throw new Rejection(400, 'given default lease TTL greater than given max lease TTL')
  }
  if (maxLeaseSeconds === 0 && defaultLeaseSeconds > SYSTEM_LEASE_SECONDS) {
    throw new Rejection(400, `given default lease TTL greater than system max lease TTL of ${SYSTEM_LEASE_SECONDS}`)
  }
}
