/** What the endpoints below `auth/token/` need of the core. */
import type { Storage } from '../../storage/barrier/storage.ts'
import type { IdentityStore } from '../identity/identity.ts'
import type { MountTable } from '../mounts/mounts.ts'
import type { PolicyStore } from '../policies/policy-store.ts'
import type { TokenRevocation } from './token-revocation.ts'
import type { TokenStore } from './token-store.ts'
import type { TokenTidy } from './token-tidy.ts'

export interface TokenParts {
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
  /** Milliseconds since 1970, by the clock that lives are measured with. */
  now(): number
}
