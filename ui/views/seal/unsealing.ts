/** What the seal view says about the state of the core. */
import { ANY_STATE } from '../../api/any-state.ts'
import { sendJson } from '../../api/client.ts'
import type { SealStatus } from '../../app/session.ts'

/** What an unsealed core does. */
export type CoreRole = 'serving' | 'secondary' | 'fenced'

export interface SealReport {
  readonly status: SealStatus
  readonly role: CoreRole
}

interface Health {
  readonly fenced?: boolean
  readonly replication_dr_mode?: string
}

export function coreRole({ fenced, replication_dr_mode: mode }: Health): CoreRole {
  if (fenced === true) return 'fenced'
  return mode === 'secondary' || mode === 'bootstrapping' ? 'secondary' : 'serving'
}

export async function readSeal(signal: AbortSignal): Promise<SealReport> {
  const [status, health] = await Promise.all([
    sendJson<SealStatus>('/v1/sys/seal-status', { signal }),
    sendJson<Health>('/v1/sys/health', { query: ANY_STATE, signal }),
  ])
  return { status, role: coreRole(health) }
}

export interface SealSummary {
  readonly kind: 'good' | 'warning' | 'bad'
  readonly text: string
}

export function sealSummary({ initialized, progress, sealed, t, type }: SealStatus, role: CoreRole): SealSummary {
  if (!initialized) return { kind: 'bad', text: 'The secrets core is not initialized: it has no keys and no data.' }
  if (!sealed && role === 'secondary') {
    return {
      kind: 'good',
      text: 'The secrets core is unsealed. As a DR secondary it serves no requests: it can follow its primary and be promoted.',
    }
  }
  if (!sealed && role === 'fenced') {
    return {
      kind: 'warning',
      text: 'The secrets core is unsealed and fenced: it serves no requests. Open Replication.',
    }
  }
  if (!sealed) return { kind: 'good', text: 'The secrets core is unsealed and serves requests.' }
  if (type !== 'shamir') {
    return { kind: 'bad', text: `The secrets core is sealed. Its seal “${type}” unseals it without key shares.` }
  }
  const left = t - progress
  const shares = left === 1 ? 'one more key share' : `${left} more key shares`
  return { kind: 'bad', text: `The secrets core is sealed: secrets cannot be read or written. It needs ${shares}.` }
}
