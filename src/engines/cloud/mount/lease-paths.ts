/** `config/lease`: how long users live. */
import * as v from 'valibot'
import { formatDuration } from '../../../platform/duration.ts'
import { path, type Path, Rejection } from '../../framework/engine.ts'
import { anything, FieldError, secondsOf } from '../../framework/fields.ts'
import { at, Kept, type Reading } from '../aws/entries.ts'

const leaseSchema = v.object({ format: v.literal(1), leaseSeconds: v.number(), maxSeconds: v.number() })

const leases = new Kept(leaseSchema, 'the lease configuration')

/** 0: what the mount says. */
export function leaseTermsOf(reading: Reading): { readonly leaseSeconds: number; readonly maxSeconds: number } {
  return leases.of(reading(at.lease)) ?? { leaseSeconds: 0, maxSeconds: 0 }
}

export const leasePaths: readonly Path[] = [
  path({
    pattern: 'config/lease',
    summary: 'How long users live',
    fields: {
      lease: anything('Time after which a user is removed, unless its lease is renewed'),
      lease_max: anything('Time after which it is removed in any case'),
    },
    read(_input, { storage }) {
      const kept = leases.of(storage.get(at.lease))
      if (!kept) return undefined
      const [lease, max] = [formatDuration(kept.leaseSeconds * 1000), formatDuration(kept.maxSeconds * 1000)]
      return { data: { lease, lease_max: max } }
    },
    update({ lease, lease_max: max }) {
      if (isMissing(lease)) throw new Rejection(400, "'lease' is a required parameter")
      if (isMissing(max)) throw new Rejection(400, "'lease_max' is a required parameter")
      const value = { format: 1 as const, leaseSeconds: termOf('lease', lease), maxSeconds: termOf('lease_max', max) }
      return { batch: { puts: [leases.put(at.lease, value)], deletes: [] } }
    },
  }),
]

function isMissing(value: unknown): boolean {
  return value === undefined || value === null || value === ''
}

function termOf(field: string, value: unknown): number {
  try {
    return secondsOf(value)
  } catch (error) {
    if (!(error instanceof FieldError)) throw error
    throw new Rejection(400, `Invalid ${field}: ${error.message}`)
  }
}
