/**
 * The seal: how the root key is stored and recovered.
 *
 * An *unseal key* encrypts the root key, which decrypts the keyring, which decrypts everything else. With the `shamir` seal the unseal key
 * is split into key shares. With the `static` seal it belongs to the machine: the server unseals without an operator, and the shares are
 * of a *recovery key*, which decrypts nothing and only authorizes operations. Each change of the keys is one batch, so it is atomic.
 *
 * The response of a rekey has the only copy of the new shares, and it may be lost when the process is killed. So the previous shares stay
 * valid for `responseMs` after the response. If the process ends within that time, both sets are valid until one of them is used; the
 * other one is then removed. If the new shares were verified, the previous ones become invalid with the batch.
 *
 * Shares are in memory only during an attempt, which ends after `idleMs` without a new share. Keys and shares are overwritten after use.
 * The strings of a request cannot be overwritten; they stay until the memory is reused.
 *
 * What can go wrong. Wrong shares: refused once the threshold is reached, without saying which one is wrong. A missing or wrong static
 * key: the barrier stays sealed, and the error names the required key. A lost key cannot be replaced.
 */
import { randomBytes } from 'node:crypto'
import { Fault, Refusal } from '../../platform/errors.ts'
import { Mutex } from '../../platform/mutex.ts'
import type { Put } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { type Barrier, KEYRING_PATH } from '../barrier/barrier.ts'
import { KEY_BYTES } from '../barrier/keyring.ts'
import { readPgpKey, readPgpKeys } from './pgp.ts'
import { checkInit, type InitialKeys, type InitRequest, sharesFor } from './initial-shares.ts'
import { CONFIG_PATH, ROOT_KEY_PATH } from '../barrier/seal-entries.ts'
import { type SealKeyVerifier, type SealMigration, type NewKey, SealKeys } from './seal-keys.ts'
import { RestoreOriginNote } from './restore-origin.ts'
import type { SealSettings } from './static-key.ts'
import { ShareCollector, type VerifiedKey, refuseShare, type ShareSplit, WRONG_SHARES } from './shares.ts'

export interface SealStatus extends ShareSplit {
  readonly type: 'shamir' | 'static'
  readonly initialised: boolean
  readonly sealed: boolean
  /** Number of shares of the unseal attempt, and its nonce; 0 and empty without an attempt. */
  readonly progress: number
  readonly nonce: string
  /** True while a migration to the configured type of seal is pending. */
  readonly migration: boolean
  /** True if the shares are of a recovery key. */
  readonly recoverySeal: boolean
  readonly warnings: readonly string[]
}

export interface SealOptions {
  /** An attempt ends after this time without a new share. */
  readonly idleMs?: number
  /** Time for the response with new shares to arrive. */
  readonly responseMs?: number
  readonly environment?: NodeJS.ProcessEnv
  /** A warning about the database, which is part of the status. */
  readonly warning?: string
  /** Whether this is a standby server (a DR secondary): unsealing verifies and holds the root key. */
  readonly isSecondary?: () => boolean
  /** Why the server must not be initialized; undefined when it may. */
  readonly refusal?: () => string | undefined
}

/** Entries that unsealing requires. */
export const KEY_PATHS: readonly string[] = [CONFIG_PATH, KEYRING_PATH, ROOT_KEY_PATH]

/** Key holders enter their shares from different places, so an attempt may take hours. */
const IDLE_MS = 3_600_000
const RESPONSE_MS = 10_000
const INTERRUPTED =
  'a rekey was interrupted before its response was confirmed: the previous and the new shares are both valid; ' +
  'the shares that are used first stay valid'
/** Instructions for a sealed server with a static seal. */
const PROVIDE_KEY =
  'provide the static key of the server (server.seal "static" current_key: a file, or LoadCredential= in its unit ' +
  'and a restart); the server log has the error of the key'
const SEALED_BY_OPERATOR =
  'restart the server: it was sealed by an operator, and unseals with its static key at the start'

export class Seal {
  /** Note of a restore that is still to be recorded. */
  readonly origin: RestoreOriginNote
  readonly #barrier: Barrier
  readonly #keys: SealKeys
  readonly #responseMs: number
  readonly #warning: string | undefined
  readonly #refusal: () => string | undefined
  readonly #isSecondary: () => boolean
  readonly idleMs: number
  readonly #attempts = new Set<{ end(): void }>()
  #unsealing: ShareCollector | undefined
  readonly #mutex = new Mutex()
  /** While it runs, the previous shares of a rekey are valid only after a crash. */
  #responseTimer: NodeJS.Timeout | undefined
  /** Prevents auto-unseal until the next start. */
  #isSealedByOperator = false

  constructor(store: Store, barrier: Barrier, settings: SealSettings, options: SealOptions = {}) {
    this.origin = new RestoreOriginNote(store)
    this.#barrier = barrier
    this.#keys = new SealKeys(store, barrier, settings, options.environment ?? process.env)
    this.idleMs = options.idleMs ?? IDLE_MS
    this.#warning = options.warning
    this.#refusal = options.refusal ?? (() => undefined)
    this.#isSecondary = options.isSecondary ?? (() => false)
    this.#responseMs = options.responseMs ?? RESPONSE_MS
  }

  /** The barrier is open, or its root key is held. */
  get #isUnsealed(): boolean {
    return !this.#barrier.isSealed || this.#barrier.standby.isHeld
  }

  /** The pending migration. None on a secondary, which must not change replicated entries. */
  get #migration(): SealMigration | undefined {
    return this.#isSecondary() ? undefined : this.#keys.migration
  }

  get status(): SealStatus {
    const config = this.#keys.stored
    const progress = this.#unsealing?.progress ?? 0
    const type = config?.type ?? this.#keys.settings.type
    return {
      type,
      initialised: config !== undefined,
      sealed: !this.#isUnsealed,
      threshold: config?.threshold ?? 0,
      shares: config?.shares ?? 0,
      progress,
      nonce: progress > 0 ? (this.#unsealing?.nonce ?? '') : '',
      migration: this.#migration !== undefined,
      recoverySeal: type === 'static',
      warnings: this.#warnings(),
    }
  }

  /** Instructions to unseal, by the type of seal. */
  get nextStep(): string {
    const { stored } = this.#keys
    const migration = this.#migration
    if (migration !== undefined) {
      return `outpost operator unseal -migrate, with the ${migration === 'to static' ? 'key shares' : 'recovery shares'}`
    }
    if (stored?.type !== 'static') return 'outpost operator unseal'
    return this.#isSealedByOperator ? SEALED_BY_OPERATOR : PROVIDE_KEY
  }

  #warnings(): string[] {
    const { stored, settings } = this.#keys
    const { keyId } = stored ?? {}
    const isOld =
      !this.#barrier.isSealed && settings.type === 'static' && keyId !== undefined && keyId !== settings.current.id
    return [
      ...(this.#warning === undefined ? [] : [this.#warning]),
      ...this.#barrier.integrity.warnings,
      ...(stored?.before && !this.#responseTimer ? [INTERRUPTED] : []),
      ...(isOld
        ? [`the root key is still encrypted with the static key "${keyId}": leave it in the configuration`]
        : []),
    ]
  }

  /** True if this database replaces a lost one and must not be initialized. */
  get isLost(): boolean {
    return this.#refusal() !== undefined
  }

  /** Throws a Refusal if the database must not be initialized. */
  refuseLost(): void {
    const why = this.#refusal()
    if (why !== undefined) throw new Refusal('conflict', `nothing was changed: ${why}`)
  }

  /** The type of seal and its numbers of shares. Throws a Refusal before initialization. */
  get config(): ShareSplit & { readonly type: 'shamir' | 'static' } {
    return this.#keys.config
  }

  /**
   * Creates the keys and the barrier, with `puts` as its first entries, in one batch. The barrier stays sealed. Throws a Refusal for an
   * invalid request, before anything has changed. `secret`: the key that is split into shares; it is overwritten.
   */
  async initialise(
    request: InitRequest,
    first: { readonly rootToken: string; readonly puts: readonly Put[] },
    secret: Buffer = randomBytes(KEY_BYTES),
  ): Promise<InitialKeys> {
    const { type } = this.#keys.settings
    const check = () => {
      if (this.#keys.stored) throw new Refusal('invalid_request', 'Vault is already initialized')
      this.refuseLost()
    }
    check()
    const split = checkInit(type, request)
    // Outside the lock: the sender of the keys controls how long it takes.
    const [holders, owner] = await Promise.all([
      readPgpKeys(split.pgpKeys),
      request.rootTokenPgpKey === '' ? undefined : readPgpKey(request.rootTokenPgpKey),
    ])
    return await this.withLock(async () => {
      check()
      const rootToken = owner ? (await owner.encrypt(first.rootToken)).toString('base64') : first.rootToken
      try {
        const shares = await sharesFor(secret, split, holders)
        await this.#keys.initialise(secret, split, first.puts)
        const isShamir = type === 'shamir'
        return { keys: isShamir ? shares : [], recoveryKeys: isShamir ? [] : shares, rootToken }
      } finally {
        secret.fill(0)
      }
    })
  }

  /**
   * Takes ownership of a share. Returns true when the barrier was unsealed with it. Throws a Refusal when the threshold is reached with
   * wrong shares. `migrate`: the operator's consent to a pending migration of the seal.
   */
  unseal(share: Buffer, migrate = false): Promise<boolean> {
    return this.withLock(async () => {
      const { type } = this.config
      if (this.#isUnsealed) return false
      const migration = this.#migration
      const unattended = `this server unseals with its static key, not with key shares: ${this.nextStep}`
      const refusal = migrationRefusal(migration, migrate) ?? (type === 'static' && !migration ? unattended : undefined)
      if (refusal !== undefined) refuseShare(share, refusal)
      this.#unsealing ??= new ShareCollector(this.idleMs, () => this.resetUnseal())
      const result = await this.#unsealing.offer(share, this.verifiers())
      if (result === 'more' || result === 'repeated') return false
      this.resetUnseal()
      if (result === 'wrong') throw new Refusal('invalid_request', `unseal failed, invalid key: ${WRONG_SHARES}`)
      try {
        await this.#openWith(result, migration)
      } finally {
        result.key.fill(0)
      }
      return this.#isUnsealed
    })
  }

  /** Ends the unseal attempt. */
  resetUnseal(): void {
    this.#unsealing?.end()
    this.#unsealing = undefined
  }

  async #openWith(verified: VerifiedKey<SealKeyVerifier>, migration: SealMigration | undefined): Promise<void> {
    const rootKey =
      migration === 'to shamir'
        ? this.#openWithStaticKey().rootKey
        : this.#keys.openRootKey(verified.key, verified.verifier.which)
    if (!rootKey) throw new Fault('the root key was changed concurrently')
    try {
      if (this.#isSecondary()) return this.#barrier.standby.hold(rootKey)
      if (migration === 'to shamir') await this.#keys.toShamir(verified, rootKey)
      this.#barrier.unseal(rootKey)
      if (migration === 'to static') await this.#keys.toStatic(verified, rootKey)
      // A failed write must not prevent unsealing: the next use of shares retries it.
      else if (migration === undefined) await this.#keys.confirm(verified).catch(() => undefined)
    } catch (error) {
      this.#barrier.seal()
      throw error
    } finally {
      rootKey.fill(0)
    }
  }

  /** Unseals with the machine's key. False if auto-unseal does not apply. Rejects with a Fault when it fails. */
  autoUnseal(): Promise<boolean> {
    return this.withLock(async () => {
      const keys = this.#keys
      if (this.#isSealedByOperator || this.#isUnsealed) return false
      if (keys.stored?.type !== 'static' || this.#migration) return false
      const { rootKey, isCurrent } = this.#openWithStaticKey()
      try {
        if (this.#isSecondary()) {
          this.#barrier.standby.hold(rootKey)
          return true
        }
        this.#barrier.unseal(rootKey)
        // A failed write must not prevent unsealing: a warning in the status says that the previous key is still needed.
        if (!isCurrent) await keys.reencrypt(rootKey).catch(() => undefined)
        return !this.#barrier.isSealed
      } finally {
        rootKey.fill(0)
      }
    })
  }

  #openWithStaticKey(): { rootKey: Buffer; isCurrent: boolean } {
    const { rootKey, key, isCurrent } = this.#keys.openWithStaticKey()
    key.key.fill(0)
    return { rootKey, isCurrent }
  }

  /** Verifiers of the keys that shares of this server recover. */
  verifiers(): readonly SealKeyVerifier[] {
    const withBefore = this.#responseTimer === undefined
    return this.config.type === 'shamir'
      ? this.#keys.unsealKeyVerifiers(withBefore)
      : this.#keys.recoveryKeyVerifiers(withBefore)
  }

  /** Must be called when shares authorized an operation: after an unconfirmed rekey these shares stay valid, the others do not. */
  async accept(verified: VerifiedKey<SealKeyVerifier>): Promise<void> {
    if (!this.#responseTimer && !this.#isSecondary()) await this.#keys.confirm(verified)
  }

  /** Replaces a key. To be called within `withLock`. */
  async replace(key: NewKey): Promise<void> {
    const isUnconfirmed = await this.#keys.replace(key)
    clearTimeout(this.#responseTimer)
    this.#responseTimer = undefined
    if (isUnconfirmed) this.#startResponseTimer()
  }

  #startResponseTimer(): void {
    this.#responseTimer = setTimeout(() => void this.#finish(), this.#responseMs)
    this.#responseTimer.unref()
  }

  /** Removes the previous shares of a rekey, or retries later. They are not accepted meanwhile, but would be after a crash. */
  #finish(): Promise<void> {
    clearTimeout(this.#responseTimer)
    return this.withLock(async () => {
      if (!this.#responseTimer) return
      try {
        await this.#keys.finish()
        this.#responseTimer = undefined
      } catch {
        this.#startResponseTimer()
      }
    })
  }

  /** Registers an attempt that must end when the barrier is sealed. */
  register(attempt: { end(): void }): void {
    this.#attempts.add(attempt)
  }

  /** Seals at once and ends every attempt. Resolves when pending changes are written. */
  async seal(): Promise<void> {
    this.#isSealedByOperator = true
    this.#barrier.seal()
    this.resetUnseal()
    for (const attempt of this.#attempts) attempt.end()
    // The response of the last rekey was sent, or its client has disconnected.
    if (this.#responseTimer) await this.#finish()
  }

  /** Changes to standby: seals the barrier, holds its root key, and ends every attempt. */
  async enterStandby(): Promise<void> {
    this.resetUnseal()
    for (const attempt of this.#attempts) attempt.end()
    if (this.#responseTimer) await this.#finish()
    // If the previous shares could not be removed, both sets stay valid until one of them is used.
    clearTimeout(this.#responseTimer)
    this.#responseTimer = undefined
    if (!this.#barrier.isSealed) this.#barrier.enterStandby()
  }

  /** Runs changes one after another. Rejects with the error of `change`. */
  withLock<T>(change: () => Promise<T>): Promise<T> {
    return this.#mutex.runExclusive(change)
  }
}

function migrationRefusal(pending: SealMigration | undefined, consent: boolean): string | undefined {
  if (consent && !pending) return "can't perform a seal migration, no migration seal found"
  if (consent || !pending) return undefined
  const how = 'repeat with migrate set to true (operator unseal -migrate)'
  return `migrate option not provided and seal migration is pending; ${how}`
}
