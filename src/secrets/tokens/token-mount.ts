/** What the mount `auth/token/` says about lives: its tuning, or what holds everywhere. */
import type { TokenParts } from './token-parts.ts'
import { DEFAULT_CONFIG } from '../mounts/mount-record.ts'
import { type LeaseTerms, leaseTerms } from '../mounts/mount-ttl.ts'

export function tokenMountRules(core: TokenParts): LeaseTerms {
  return leaseTerms(core.open.mounts.get('auth/token/')?.record.config ?? DEFAULT_CONFIG)
}
