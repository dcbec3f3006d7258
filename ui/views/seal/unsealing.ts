/** What the seal view says about the state of the core. */
import type { SealStatus } from '../../app/session.ts'

export interface SealSummary {
  readonly kind: 'good' | 'warning' | 'bad'
  readonly text: string
}

export function sealSummary({ initialized, progress, sealed, t, type }: SealStatus): SealSummary {
  if (!initialized) return { kind: 'bad', text: 'The secrets core is not initialized: it has no keys and no data.' }
  if (!sealed) return { kind: 'good', text: 'The secrets core is unsealed and serves requests.' }
  if (type !== 'shamir') {
    return { kind: 'bad', text: `The secrets core is sealed. Its seal “${type}” unseals it without key shares.` }
  }
  const left = t - progress
  const shares = left === 1 ? 'one more key share' : `${left} more key shares`
  return { kind: 'bad', text: `The secrets core is sealed: secrets cannot be read or written. It needs ${shares}.` }
}
