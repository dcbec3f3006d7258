/** The engines of a core: those for mounts, and those of the core itself. */
import { approle } from '../../auth/approle/approle.ts'
import { cloud } from '../../engines/cloud/cloud.ts'
import { cubbyhole } from '../../engines/cubbyhole/cubbyhole.ts'
import type { Engine } from '../../engines/framework/engine.ts'
import { kv } from '../../engines/kv/kv.ts'
import { totp } from '../../engines/totp/totp.ts'
import { userpass } from '../../auth/userpass/userpass.ts'
import type { SecretsCore } from '../../secrets/core.ts'
import { identityEngine } from '../../secrets/identity/identity-engine.ts'
import { systemEngine } from '../../secrets/system/system.ts'
import { tokenEngine } from '../../secrets/tokens/token-engine.ts'

export const coreEngines: readonly Engine[] = [cubbyhole, kv, userpass, approle, totp, cloud]

export const ownEngines = (core: SecretsCore): Engine[] => [systemEngine(core), tokenEngine(core), identityEngine(core)]
