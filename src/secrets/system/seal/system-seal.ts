/** `sys/init`, `sys/unseal`, `sys/seal` and `sys/seal-status`. Most are served before tokens exist or can be read. */
import type { Put } from '../../../storage/barrier/storage.ts'
import type { Barrier } from '../../../storage/barrier/barrier.ts'
import type { InitialSplit } from '../../../storage/seal/initial-shares.ts'
import { StaticKeyFault } from '../../../storage/seal/static-key.ts'
import { decodeShare } from '../../../storage/seal/shares.ts'
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../../engines/framework/engine.ts'
import { boolean, type EngineField, integer, text, textList } from '../../../engines/framework/fields.ts'
import { messageOf, Refusal, sealed } from '../../../platform/errors.ts'
import { versionFacts } from '../version-history.ts'
import type { CoreState, WithOptions } from '../core-parts.ts'
import { OPERATION_TOKEN, type SecondaryAccess } from '../../dr-endpoints/secondary-paths.ts'
import { type PgpRateLimit, sealLog } from './seal-access.ts'

const STORAGE_TYPE = 'sqlite'

export interface SealParts extends CoreState, WithOptions<'seal' | 'version' | 'logger' | 'requireNoOtherCore' | 'ha'> {
  readonly barrier: Pick<Barrier, 'isSealed'>
  /** The entries of a new core. */
  initialState(): { readonly puts: readonly Put[]; readonly rootToken: string }
  activateOrSeal(): Promise<void>
  seal(): Promise<void>
}

export function sealPaths(core: SealParts, pgpRate: PgpRateLimit, access: SecondaryAccess): Path[] {
  const { seal } = core.options
  const logEvent = sealLog(core)
  const bareStatus = (): Reply => ({ bare: sealStatus(core) })
  return [
    path({
      pattern: 'seal-status',
      summary: 'Read the seal status and the unseal progress',
      unauthenticated: true,
      whileSealed: true,
      onSecondary: true,
      fields: {},
      read: bareStatus,
    }),
    path({
      pattern: 'unseal',
      summary: 'Submit a key share to unseal the core',
      unauthenticated: true,
      whileSealed: true,
      onSecondary: true,
      fields: {
        key: text('Key share in hex or base64', { fallback: '' }),
        reset: boolean('Discard the shares submitted so far', { fallback: false }),
        migrate: boolean('Migrate to the configured seal', { fallback: false }),
      },
      async update({ key, migrate, reset }, call) {
        if (key === '' && !reset) throw new Refusal('invalid_request', KEY_OR_RESET)
        const { initialised, migration: isMigrating, sealed: isSealed } = seal.status
        if (!initialised) throw new Refusal('invalid_request', 'Vault is not initialized')
        if (reset && !isSealed) throw new Refusal('invalid_request', 'vault is unsealed')
        if (reset) seal.resetUnseal()
        else if (isSealed && (await withStaticKey(core, () => seal.unseal(decodeShare(key), migrate)))) {
          await core.activateOrSeal()
          if (isMigrating && !seal.status.migration) logEvent('seal migrated', call, { seal: seal.status.type })
          logEvent('secrets core unsealed', call)
        }
        return bareStatus()
      },
    }),
    path({
      pattern: 'seal',
      summary: 'Seal the core until it is unsealed with key shares or, with a static seal, restarted',
      sudo: true,
      // Sealing a sealed core has no effect, so it needs no token.
      whileSealed: true,
      onSecondary: true,
      fields: OPERATION_TOKEN,
      async update({ dr_operation_token: operationToken }, call) {
        // Vault's: a standby cannot read tokens.
        if (core.isHaStandby) throw new Rejection(500, SEAL_STANDBY)
        if (core.isSecondary ? core.isSealed : core.barrier.isSealed) return undefined
        if (core.isSecondary) await requireOnSecondary(access, operationToken, call)
        // The core is being activated: tokens cannot be read yet, so no caller is authorized.
        else if (!core.isActive) throw sealed()
        await core.seal()
        logEvent('secrets core sealed', call)
        return undefined
      },
    }),
    path({
      pattern: 'step-down',
      summary: 'Make a standby the active server; no effect without high availability',
      sudo: true,
      fields: {},
      async update(_input, call) {
        const { ha } = core.options
        if (!ha) return undefined
        await ha.stepDown()
        logEvent('active server has stepped down', call)
        return undefined
      },
    }),
    initPath(core, pgpRate),
  ]
}

/** Requires an operation token, or a token of the primary that may seal there. */
async function requireOnSecondary(
  { operationToken, tokenAuth }: SecondaryAccess,
  given: string,
  call: EngineCall,
): Promise<void> {
  if (given === '' && call.token !== undefined) await tokenAuth.require(call, 'update', true)
  else operationToken.check(given)
}

const SEAL_STANDBY = 'vault cannot seal when in standby mode; please restart instead'
const KEY_OR_RESET = "'key' must be specified in request body as JSON, or 'reset' set to true"

function initPath(core: SealParts, pgpRate: PgpRateLimit): Path {
  const { seal } = core.options
  return path({
    pattern: 'init',
    summary: 'Initialize the core: generate its keys and the first root token',
    unauthenticated: true,
    whileSealed: true,
    onSecondary: 'read',
    fields: {
      secret_shares: number('Number of key shares'),
      secret_threshold: number('Number of shares required to unseal'),
      pgp_keys: textList('PGP keys in base64, one for each share'),
      recovery_shares: number('Number of recovery key shares, with auto-unseal'),
      recovery_threshold: number('Number of recovery key shares required'),
      recovery_pgp_keys: textList('PGP keys in base64, one for each recovery key share'),
      root_token_pgp_key: text('PGP key in base64 to encrypt the root token with', { fallback: '' }),
      stored_shares: number('Not used'),
      force: boolean('Initialize even if another server of the region has a secrets core', { fallback: false }),
    },
    read: () => ({ bare: { initialized: seal.status.initialised } }),
    async update(input, call) {
      const keys = [...(input.pgp_keys ?? []), ...(input.recovery_pgp_keys ?? []), input.root_token_pgp_key]
      if (!seal.status.initialised) {
        pgpRate.check(keys, call)
        if (!input.force) await core.options.requireNoOtherCore?.()
      }
      const request = {
        unseal: splitOf(input.secret_shares, input.secret_threshold, input.pgp_keys),
        recovery: splitOf(input.recovery_shares, input.recovery_threshold, input.recovery_pgp_keys),
        rootTokenPgpKey: input.root_token_pgp_key,
      }
      const made = await withStaticKey(core, () => seal.initialise(request, core.initialState()))
      sealLog(core)('secrets core initialized', call)
      await unsealUnattended(core)
      const recovery = { recovery_keys: hex(made.recoveryKeys), recovery_keys_base64: base64(made.recoveryKeys) }
      const shares = { keys: hex(made.keys), keys_base64: base64(made.keys) }
      // Strings cannot be overwritten, buffers can.
      for (const share of [...made.keys, ...made.recoveryKeys]) share.fill(0)
      return { bare: { ...shares, ...(made.recoveryKeys.length > 0 ? recovery : {}), root_token: made.rootToken } }
    },
  })
}

/** After an initialization. Never rejects, because the answer with the keys must be sent. */
async function unsealUnattended(core: SealParts): Promise<void> {
  try {
    if (await core.options.seal.autoUnseal()) await core.activateOrSeal()
  } catch (error) {
    core.options.logger.error('auto-unseal after initialization failed', { error: messageOf(error) })
  }
}

/** The error of a static seal names files of the machine, so only the log has it. */
async function withStaticKey<T>(core: SealParts, change: () => Promise<T>): Promise<T> {
  try {
    return await change()
  } catch (error) {
    if (!(error instanceof StaticKeyFault)) throw error
    core.options.logger.error('static seal key not usable', { error: error.message })
    throw new Refusal('unavailable', "the static seal's key cannot be used: see the log of the server")
  }
}

function number(description: string): EngineField<number> {
  return integer(description, { fallback: 0 })
}

function splitOf(shares: number, threshold: number, pgpKeys: readonly string[] | undefined): InitialSplit {
  return { shares, threshold, pgpKeys: pgpKeys ?? [] }
}

export function hex(values: readonly Buffer[]): string[] {
  return values.map((value) => value.toString('hex'))
}

export function base64(values: readonly Buffer[]): string[] {
  return values.map((value) => value.toString('base64'))
}

/** The members and their order are Vault's. */
function sealStatus(core: SealParts): Record<string, unknown> {
  const status = core.options.seal.status
  return {
    type: status.type,
    initialized: status.initialised,
    sealed: core.isSealed,
    t: status.threshold,
    n: status.shares,
    progress: status.progress,
    nonce: status.nonce,
    recovery_seal: status.recoverySeal,
    ...(status.recoverySeal ? { recovery_seal_type: 'shamir' } : {}),
    ...versionFacts(core.options.version),
    build_date: '',
    commit_date: '',
    migration: status.migration,
    ...(core.isActive ? { cluster_name: core.open.clusterName, cluster_id: core.open.clusterId } : {}),
    storage_type: STORAGE_TYPE,
    ...(status.warnings.length > 0 ? { warnings: status.warnings } : {}),
  }
}
