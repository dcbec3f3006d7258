/** What the mount `auth/token/` says about lives: its tuning, or what holds everywhere. */
import type { SecretsCore } from './core.ts'
import { LEASE_SECONDS } from './token-ttl.ts'

export function tokenMountRules(core: SecretsCore): { readonly defaultSeconds: number; readonly maxSeconds: number } {
  const config = core.open.mounts.get('auth/token/')?.record.config
  const maxSeconds = config?.maxLeaseSeconds || LEASE_SECONDS
  return { defaultSeconds: Math.min(config?.defaultLeaseSeconds || LEASE_SECONDS, maxSeconds), maxSeconds }
}
