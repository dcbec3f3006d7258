/** Making the barrier, opening it and sealing it. These answer before there is anybody who could have a token. */
import type { Put } from '../../../storage/barrier/storage.ts'
import type { Barrier } from '../../../storage/barrier/barrier.ts'
import type { InitialSplit } from '../../../storage/seal/initial-shares.ts'
import { StaticKeyFault } from '../../../storage/seal/static-key.ts'
import { decodeShare } from '../../../storage/seal/shares.ts'
import { type EngineCall, path, type Path, type Reply } from '../../../engines/framework/engine.ts'
import { boolean, type EngineField, integer, text, textList } from '../../../engines/framework/fields.ts'
import { messageOf, Refusal, sealed } from '../../../platform/errors.ts'
import { versionFacts } from '../api-version.ts'
import type { CoreState, MadeWith } from '../core-parts.ts'
import { OPERATION_TOKEN, type SecondaryAccess } from '../../dr/secondary-paths.ts'
import type { PgpRate } from './pgp-rate.ts'
import { sealLog } from './seal-log.ts'

const STORAGE_TYPE = 'sqlite'

export interface SealParts extends CoreState, MadeWith<'seal' | 'version' | 'logger' | 'requireNoOtherCore'> {
  readonly barrier: Pick<Barrier, 'isSealed'>
  /** What a fresh core begins with. */
  beginning(): { readonly puts: readonly Put[]; readonly rootToken: string }
  activateOrSeal(): Promise<void>
  seal(): Promise<void>
}

export function sealPaths(core: SealParts, pgpRate: PgpRate, access: SecondaryAccess): Path[] {
  const { seal } = core.options
  const tell = sealLog(core)
  const bareStatus = (): Reply => ({ bare: sealStatus(core) })
  return [
    path({
      pattern: 'seal-status',
      summary: 'Whether the core is sealed, and how far an attempt to open it is',
      unauthenticated: true,
      whileSealed: true,
      onSecondary: true,
      fields: {},
      read: bareStatus,
    }),
    path({
      pattern: 'unseal',
      summary: 'Take one key share to open the core',
      unauthenticated: true,
      whileSealed: true,
      onSecondary: true,
      fields: {
        key: text('A key share in hex or base64', { fallback: '' }),
        reset: boolean('Forget the shares that were given so far', { fallback: false }),
        migrate: boolean('Change over to the seal of the configuration', { fallback: false }),
      },
      async update({ key, migrate, reset }, call) {
        if (key === '' && !reset) throw new Refusal('invalid_request', KEY_OR_RESET)
        const { initialised, migration: isMigrating, sealed: isSealed } = seal.status
        if (!initialised) throw new Refusal('invalid_request', 'Vault is not initialized')
        if (reset && !isSealed) throw new Refusal('invalid_request', 'vault is unsealed')
        if (reset) seal.resetUnseal()
        else if (isSealed && (await withMachineKey(core, () => seal.unseal(decodeShare(key), migrate)))) {
          await core.activateOrSeal()
          if (isMigrating && !seal.status.migration) tell('the seal was migrated', call, { seal: seal.status.type })
          tell('the secrets core was unsealed', call)
        }
        return bareStatus()
      },
    }),
    path({
      pattern: 'seal',
      summary: 'Seal the core: nothing can be read until key shares, or a restart with a static seal, open it again',
      sudo: true,
      // While it is sealed anybody may ask for what is so already.
      whileSealed: true,
      onSecondary: true,
      fields: OPERATION_TOKEN,
      async update({ dr_operation_token: operationToken }, call) {
        if (core.isSecondary ? core.isSealed : core.barrier.isSealed) return undefined
        if (core.isSecondary) await requireOnSecondary(access, operationToken, call)
        // It is about to open: nobody can be told apart yet, so nobody has the right.
        else if (!core.isActive) throw sealed()
        await core.seal()
        tell('the secrets core was sealed', call)
        return undefined
      },
    }),
    path({
      pattern: 'step-down',
      summary: 'Give up the active role: there is no other server that could take it',
      sudo: true,
      fields: {},
      update: () => undefined,
    }),
    initPath(core, pgpRate),
  ]
}

/** An operation token, or a token of the primary that may do it there. */
async function requireOnSecondary({ rights, token }: SecondaryAccess, given: string, call: EngineCall): Promise<void> {
  if (given === '' && call.token !== undefined) await rights.require(call, 'update', true)
  else token.check(given)
}

const KEY_OR_RESET = "'key' must be specified in request body as JSON, or 'reset' set to true"

function initPath(core: SealParts, pgpRate: PgpRate): Path {
  const { seal } = core.options
  return path({
    pattern: 'init',
    summary: 'Make the keys and the first root token',
    unauthenticated: true,
    whileSealed: true,
    onSecondary: 'read',
    fields: {
      secret_shares: number('Into how many shares the unseal key is divided'),
      secret_threshold: number('How many of them open the core'),
      pgp_keys: textList('PGP keys in base64, one for the holder of each share'),
      recovery_shares: number('The same for the recovery key of a seal that opens by itself'),
      recovery_threshold: number('How many of those prove who one is'),
      recovery_pgp_keys: textList('PGP keys of their holders'),
      root_token_pgp_key: text('PGP key, in base64, of who gets the root token', { fallback: '' }),
      stored_shares: number('Not used'),
      force: boolean('Also where another server of the region has a secrets core', { fallback: false }),
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
      const made = await withMachineKey(core, () => seal.initialise(request, core.beginning()))
      sealLog(core)('the secrets core was initialised', call)
      await openOwn(core)
      const recovery = { recovery_keys: hex(made.recoveryKeys), recovery_keys_base64: base64(made.recoveryKeys) }
      const shares = { keys: hex(made.keys), keys_base64: base64(made.keys) }
      // The texts in the answer cannot be overwritten; this can.
      for (const share of [...made.keys, ...made.recoveryKeys]) share.fill(0)
      return { bare: { ...shares, ...(made.recoveryKeys.length > 0 ? recovery : {}), root_token: made.rootToken } }
    },
  })
}

/** After an initialisation: whatever keeps it from opening, the answer with the keys goes out. */
async function openOwn(core: SealParts): Promise<void> {
  try {
    if (await core.options.seal.autoUnseal()) await core.activateOrSeal()
  } catch (error) {
    core.options.logger.error('the secrets core was initialised and does not open', { error: messageOf(error) })
  }
}

/** What is wrong with the machine's key names its files: the caller is told where to look, the log has the rest. */
async function withMachineKey<T>(core: SealParts, change: () => Promise<T>): Promise<T> {
  try {
    return await change()
  } catch (error) {
    if (!(error instanceof StaticKeyFault)) throw error
    core.options.logger.error('the static seal cannot be used', { error: error.message })
    throw new Refusal('unavailable', "the static seal's key cannot be used: the log of the server says why")
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

/** In the members, and their order, that stock clients have always seen. */
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
