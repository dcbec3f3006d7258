/** The services of the core that the endpoints below `auth/token/` use. */
import type { Storage } from '../../storage/barrier/storage.ts'
import type { IdentityStore } from '../identity/identity.ts'
import { DEFAULT_CONFIG } from '../mounts/mount-record.ts'
import { type TtlLimits, ttlLimitsOf } from '../mounts/mount-ttl.ts'
import type { MountTable } from '../mounts/mounts.ts'
import type { PolicyStore } from '../policies/policy-store.ts'
import type { TokenRevocation } from './token-revocation.ts'
import type { TokenStore } from './token-store.ts'
import type { TokenTidy } from './token-tidy.ts'

export interface TokenServices {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: {
    readonly storage: Storage
    readonly identity: IdentityStore
    readonly mounts: MountTable
    readonly policies: PolicyStore
    readonly tokens: TokenStore
    readonly revocation: TokenRevocation
    readonly tidy: TokenTidy
  }
  /** Milliseconds since 1970, by the core's clock (`core-clock.ts`). */
  now(): number
}

/** The TTL limits of the mount `auth/token/`, as it is tuned. */
export function tokenMountTtlLimits(core: TokenServices): TtlLimits {
  return ttlLimitsOf(core.open.mounts.get('auth/token/')?.record.config ?? DEFAULT_CONFIG)
}
