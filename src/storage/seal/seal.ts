/**
 * The seal: how the root key is kept, and who can bring it back.
 *
 * An *unseal key* encrypts the root key, which opens the keyring, which opens everything else. With the `shamir` seal the
 * unseal key is in nobody's hands: people hold shares of it. With the `static` seal it is a key of the machine, the barrier
 * opens without anybody, and people hold shares of a *recovery key* instead, which opens nothing and only proves who they
 * are. Everything that changes this is one batch: after a crash it is as before or as after.
 *
 * A rekey ends in an answer that nobody may have received: whoever killed the process killed the only copy of the new
 * shares with it. So the shares before stay good, for `answeredMs` after the answer, or, when the process ends within that
 * time, until one of the two is used: that one stays, the other one goes. Where the new shares were verified, the old ones
 * end with the batch.
 *
 * Shares lie in memory only while an attempt runs, and an attempt ends by itself when nobody adds to it (`idleMs`). Keys
 * and shares are overwritten when they have served; texts in a request cannot be, they stay until memory is used again.
 *
 * What can go wrong. Wrong shares: refused when there are enough of them, without a hint which one it was. A static key
 * that is gone or another one: the barrier stays sealed, the fault says which key it wants. Nothing replaces a lost key.
 */
import { randomBytes } from 'node:crypto'
import { Fault, Refusal } from '../../platform/errors.ts'
import type { Put } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { type Barrier, KEYRING_PATH } from '../barrier/barrier.ts'
import { KEY_BYTES } from '../barrier/keyring.ts'
import { readPgpKey, readPgpKeys } from './pgp.ts'
import { checkInit, type InitialKeys, type InitRequest, sharesFor } from './seal-init.ts'
import { CONFIG_PATH, ROOT_KEY_PATH } from '../barrier/seal-entries.ts'
import { type KeyProof, type Migration, type NewKey, SealKeys } from './seal-keys.ts'
import { OriginNote } from './seal-origin.ts'
import type { SealSettings } from './seal-static.ts'
import { Gathering, type Proven, refuseShare, type Split, WRONG_SHARES } from './shares.ts'

export interface SealStatus extends Split {
  readonly type: 'shamir' | 'static'
  readonly initialised: boolean
  readonly sealed: boolean
  /** Shares given to open it, and the attempt's name; 0 and empty when there is no attempt. */
  readonly progress: number
  readonly nonce: string
  /** True while the configuration asks for another kind of seal than there is. */
  readonly migration: boolean
  /** True when the shares are of a recovery key. */
  readonly recoverySeal: boolean
  readonly warnings: readonly string[]
}

export interface SealOptions {
  /** After which an attempt that nobody adds to ends. */
  readonly idleMs?: number
  /** For the answer with new shares to arrive. */
  readonly answeredMs?: number
  readonly environment?: NodeJS.ProcessEnv
  /** What an operator is to know about the database, shown with the status. */
  readonly warning?: string
  /** Whether this server stands by for another one, whose entries it has: its root key is proven, and held. */
  readonly isSecondary?: () => boolean
  /** Why the server must not be initialised, in words for the operator; undefined when it may. */
  readonly refusal?: () => string | undefined
}

/** Without these entries nothing opens what is stored. */
export const KEY_PATHS: readonly string[] = [CONFIG_PATH, KEYRING_PATH, ROOT_KEY_PATH]

/** People meet for it, and mostly not in one room. */
const IDLE_MS = 3_600_000
const ANSWERED_MS = 10_000
const INTERRUPTED =
  'a rekey was interrupted before its answer was known to have arrived: the shares before it and the new ones both work; ' +
  'those that are used first stay'
/** Of a static seal: what an operator does to open it. */
const GIVE_KEY =
  'give the server the static key of its machine (server.seal "static" current_key: a file, or LoadCredential= in its unit ' +
  'and a restart); its log says what is wrong with the key'
const SEALED_ON_PURPOSE =
  'restart the server: it was sealed by an operator, and opens with the static key of its machine when it starts'

export class Seal {
  /** How the entries came here, where that is still to be recorded. */
  readonly origin: OriginNote
  readonly #barrier: Barrier
  readonly #keys: SealKeys
  readonly #answeredMs: number
  readonly #warning: string | undefined
  readonly #refusal: () => string | undefined
  readonly #isSecondary: () => boolean
  readonly idleMs: number
  readonly #attempts = new Set<{ end(): void }>()
  #unsealing: Gathering | undefined
  #turns: Promise<unknown> = Promise.resolve()
  /** While it runs, the shares before the last rekey are kept for a crash only. */
  #answering: NodeJS.Timeout | undefined
  /** Somebody has sealed it: the machine does not open it again before the next start. */
  #isSealedOnPurpose = false

  constructor(store: Store, barrier: Barrier, settings: SealSettings, options: SealOptions = {}) {
    this.origin = new OriginNote(store)
    this.#barrier = barrier
    this.#keys = new SealKeys(store, barrier, settings, options.environment ?? process.env)
    this.idleMs = options.idleMs ?? IDLE_MS
    this.#warning = options.warning
    this.#refusal = options.refusal ?? (() => undefined)
    this.#isSecondary = options.isSecondary ?? (() => false)
    this.#answeredMs = options.answeredMs ?? ANSWERED_MS
  }

  /** The barrier is open, or its root key is held for when it is to be. */
  get #isProven(): boolean {
    return !this.#barrier.isSealed || this.#barrier.standby.isHeld
  }

  /** What the settings ask for and is not so yet. A secondary changes nothing: its entries are another server's. */
  get #migration(): Migration | undefined {
    return this.#isSecondary() ? undefined : this.#keys.migration
  }

  get status(): SealStatus {
    const config = this.#keys.stored
    const progress = this.#unsealing?.progress ?? 0
    const type = config?.type ?? this.#keys.settings.type
    return {
      type,
      initialised: config !== undefined,
      sealed: !this.#isProven,
      threshold: config?.threshold ?? 0,
      shares: config?.shares ?? 0,
      progress,
      nonce: progress > 0 ? (this.#unsealing?.nonce ?? '') : '',
      migration: this.#migration !== undefined,
      recoverySeal: type === 'static',
      warnings: this.#warnings(),
    }
  }

  /** What an operator does to open it, by the kind of seal. */
  get nextStep(): string {
    const { stored } = this.#keys
    const migration = this.#migration
    if (migration !== undefined) {
      return `outpost operator unseal -migrate, with the ${migration === 'to static' ? 'key shares' : 'recovery shares'}`
    }
    if (stored?.type !== 'static') return 'outpost operator unseal'
    return this.#isSealedOnPurpose ? SEALED_ON_PURPOSE : GIVE_KEY
  }

  #warnings(): string[] {
    const { stored, settings } = this.#keys
    const { keyId } = stored ?? {}
    const isOld =
      !this.#barrier.isSealed && settings.type === 'static' && keyId !== undefined && keyId !== settings.current.id
    return [
      ...(this.#warning === undefined ? [] : [this.#warning]),
      ...this.#barrier.integrity.warnings,
      ...(stored?.before && !this.#answering ? [INTERRUPTED] : []),
      ...(isOld
        ? [`the root key is still encrypted with the static key "${keyId}": leave it in the configuration`]
        : []),
    ]
  }

  /** True where there was a database before that this one is not: nothing begins on it. */
  get isLost(): boolean {
    return this.#refusal() !== undefined
  }

  /** Throws a Refusal where nothing may begin on this database. */
  refuseLost(): void {
    const why = this.#refusal()
    if (why !== undefined) throw new Refusal('conflict', `nothing was changed: ${why}`)
  }

  /** The type of seal and how its shares are divided. Throws a Refusal where there is none yet. */
  get config(): Split & { readonly type: 'shamir' | 'static' } {
    return this.#keys.config
  }

  /**
   * Makes the keys and the barrier, with `puts` as its first entries, in one batch. It is sealed afterwards. Throws a
   * Refusal for what cannot be, before anything has changed. `secret` is what people get shares of; it is overwritten.
   */
  initialise(
    request: InitRequest,
    first: { readonly rootToken: string; readonly puts: readonly Put[] },
    secret: Buffer = randomBytes(KEY_BYTES),
  ): Promise<InitialKeys> {
    return this.#initialise(request, first, secret)
  }

  async #initialise(
    request: InitRequest,
    first: { readonly rootToken: string; readonly puts: readonly Put[] },
    secret: Buffer,
  ): Promise<InitialKeys> {
    const { type } = this.#keys.settings
    const check = () => {
      if (this.#keys.stored) throw new Refusal('invalid_request', 'Vault is already initialized')
      this.refuseLost()
    }
    check()
    const split = checkInit(type, request)
    // Not in the turn: it lasts as long as the sender of the keys likes.
    const [holders, owner] = await Promise.all([
      readPgpKeys(split.pgpKeys),
      request.rootTokenPgpKey === '' ? undefined : readPgpKey(request.rootTokenPgpKey),
    ])
    return await this.inTurn(async () => {
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
   * Takes one share (and owns it from here) to open the barrier; true when it has opened with it. Throws a Refusal for
   * shares that are enough and open nothing. `migrate` is the operator's consent to change over to the kind of seal that
   * the configuration names.
   */
  unseal(share: Buffer, migrate = false): Promise<boolean> {
    return this.inTurn(async () => {
      const { type } = this.config
      if (this.#isProven) return false
      const migration = this.#migration
      const unattended = `this server opens with the static key of its machine, key shares do not open it: ${this.nextStep}`
      const refusal = migrationRefusal(migration, migrate) ?? (type === 'static' && !migration ? unattended : undefined)
      if (refusal !== undefined) refuseShare(share, refusal)
      this.#unsealing ??= new Gathering(this.idleMs, () => this.resetUnseal())
      const outcome = await this.#unsealing.offer(share, this.proofs())
      if (outcome === 'more' || outcome === 'repeated') return false
      this.resetUnseal()
      if (outcome === 'wrong') throw new Refusal('invalid_request', `unseal failed, invalid key: ${WRONG_SHARES}`)
      try {
        await this.#openWith(outcome, migration)
      } finally {
        outcome.key.fill(0)
      }
      return this.#isProven
    })
  }

  /** Forgets the shares that were given to open it. */
  resetUnseal(): void {
    this.#unsealing?.end()
    this.#unsealing = undefined
  }

  async #openWith(proven: Proven<KeyProof>, migration: Migration | undefined): Promise<void> {
    const rootKey =
      migration === 'to shamir' ? this.#openByMachine().rootKey : this.#keys.openRootKey(proven.key, proven.proof.which)
    if (!rootKey) throw new Fault('the root key has changed while it was used')
    try {
      if (this.#isSecondary()) return this.#barrier.standby.hold(rootKey)
      if (migration === 'to shamir') await this.#keys.toShamir(proven, rootKey)
      this.#barrier.unseal(rootKey)
      if (migration === 'to static') await this.#keys.toStatic(proven, rootKey)
      // Not worth to stay sealed for: what cannot be written now is tidied up the next time.
      else if (migration === undefined) await this.#keys.settle(proven).catch(() => undefined)
    } catch (error) {
      this.#barrier.seal()
      throw error
    } finally {
      rootKey.fill(0)
    }
  }

  /** Opens with the machine's own key. False when that is not for it to do; throws a Fault when it should and cannot. */
  openUnattended(): Promise<boolean> {
    return this.inTurn(async () => {
      const keys = this.#keys
      if (this.#isSealedOnPurpose || this.#isProven) return false
      if (keys.stored?.type !== 'static' || this.#migration) return false
      const { rootKey, isCurrent } = this.#openByMachine()
      try {
        if (this.#isSecondary()) {
          this.#barrier.standby.hold(rootKey)
          return true
        }
        this.#barrier.unseal(rootKey)
        // Not worth to stay sealed for: a warning in the status says that the key before is still needed.
        if (!isCurrent) await keys.reencrypt(rootKey).catch(() => undefined)
        return !this.#barrier.isSealed
      } finally {
        rootKey.fill(0)
      }
    })
  }

  #openByMachine(): { rootKey: Buffer; isCurrent: boolean } {
    const { rootKey, key, isCurrent } = this.#keys.openByMachine()
    key.key.fill(0)
    return { rootKey, isCurrent }
  }

  /** What proves that shares are of this server. */
  proofs(): readonly KeyProof[] {
    const withBefore = this.#answering === undefined
    return this.config.type === 'shamir' ? this.#keys.rootProofs(withBefore) : this.#keys.recoveryProofs(withBefore)
  }

  /** Shares were given that prove something else than that they open it: those before a rekey go, or come back. */
  async accept(proven: Proven<KeyProof>): Promise<void> {
    if (!this.#answering && !this.#isSecondary()) await this.#keys.settle(proven)
  }

  /** Another key from now on, in one batch. In a turn of the caller's. */
  async replace(key: NewKey): Promise<void> {
    const isAnswering = await this.#keys.replace(key)
    clearTimeout(this.#answering)
    this.#answering = undefined
    if (isAnswering) this.#answer()
  }

  #answer(): void {
    this.#answering = setTimeout(() => void this.#finish(), this.#answeredMs)
    this.#answering.unref()
  }

  /** Ends the shares before a rekey, or tries it again later: they do not work meanwhile, but they would after a crash. */
  #finish(): Promise<void> {
    clearTimeout(this.#answering)
    return this.inTurn(async () => {
      if (!this.#answering) return
      try {
        await this.#keys.finish()
        this.#answering = undefined
      } catch {
        this.#answer()
      }
    })
  }

  /** An attempt that holds something in memory is ended when the barrier is sealed. */
  register(attempt: { end(): void }): void {
    this.#attempts.add(attempt)
  }

  /** Seals at once and ends every attempt; resolves when what is left to write is written. */
  async seal(): Promise<void> {
    this.#isSealedOnPurpose = true
    this.#barrier.seal()
    this.resetUnseal()
    for (const attempt of this.#attempts) attempt.end()
    // A rekey of this process has been answered, or its caller has gone.
    if (this.#answering) await this.#finish()
  }

  /** The server stands by from now on: its barrier closes, and its root key is held. Every attempt ends. */
  async standDown(): Promise<void> {
    this.resetUnseal()
    for (const attempt of this.#attempts) attempt.end()
    if (this.#answering) await this.#finish()
    if (!this.#barrier.isSealed) this.#barrier.standDown()
  }

  /** One change after another. What it throws is the caller's. */
  inTurn<T>(change: () => Promise<T>): Promise<T> {
    const done = this.#turns.then(change)
    this.#turns = done.catch(() => undefined)
    return done
  }
}

function migrationRefusal(pending: Migration | undefined, consent: boolean): string | undefined {
  if (consent && !pending) return "can't perform a seal migration, no migration seal found"
  if (consent || !pending) return undefined
  const how = 'repeat with migrate set to true (operator unseal -migrate)'
  return `migrate option not provided and seal migration is pending; ${how}`
}
