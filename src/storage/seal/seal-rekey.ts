/**
 * An attempt to give people other key shares: enough of the shares that they hold now, then new ones of a new key, for the
 * same people or others. Where verification is asked for, the new ones count only once enough of them were given back.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import * as v from 'valibot'
import { Fault, Refusal, sealed } from '../../platform/errors.ts'
import type { Barrier } from '../barrier/barrier.ts'
import { KEY_BYTES } from '../barrier/keyring.ts'
import { type PgpKey, readPgpKeys } from './pgp.ts'
import { sharesFor } from './seal-init.ts'
import { BACKUP_PATHS } from '../barrier/seal-entries.ts'
import type { KeyProof, Target } from './seal-keys.ts'
import type { Seal } from './seal.ts'
import { checkSplit, Gathering, type Proven, refuseShare, type Split, WRONG_SHARES } from './shares.ts'

export interface RekeyRequest extends Split {
  readonly pgpKeys: readonly string[]
  readonly backup: boolean
  readonly requireVerification: boolean
}

export interface RekeyStatus extends Split {
  readonly nonce: string
  readonly started: boolean
  /** Shares of the key of today that were given, of so many that are needed. */
  readonly progress: number
  readonly required: number
  readonly fingerprints: readonly string[]
  readonly backup: boolean
  readonly requiresVerification: boolean
  /** Empty until the new shares are there to be verified. */
  readonly verificationNonce: string
}

export interface RekeyResult {
  readonly nonce: string
  /** Shares, or PGP messages that hold their hex form. None when the machine holds the key. */
  readonly keys: readonly Buffer[]
  readonly fingerprints: readonly string[]
  readonly backup: boolean
  /** Empty: the new shares count from now on. */
  readonly verificationNonce: string
}

export interface VerificationStatus extends Split {
  readonly nonce: string
  readonly started: boolean
  readonly progress: number
}

export interface Backup {
  readonly nonce: string
  /** Fingerprint to the PGP messages for it, in hex. */
  readonly keys: Readonly<Record<string, readonly string[]>>
}

interface Attempt {
  readonly request: RekeyRequest
  readonly holders: readonly PgpKey[]
  readonly given: Gathering
  /** The new key, while it waits to be verified. */
  made?: { readonly key: Buffer; readonly backup: Buffer | undefined; verifying: Gathering }
}

/** New shares travel to their holders and back. */
const VERIFICATION_MS = 24 * 3_600_000
const backupSchema = v.object({ nonce: v.string(), keys: v.record(v.string(), v.array(v.string())) })

export class Rekey {
  readonly #seal: Seal
  readonly #barrier: Barrier
  readonly #target: Target
  #attempt: Attempt | undefined

  constructor(seal: Seal, barrier: Barrier, target: Target) {
    this.#seal = seal
    this.#barrier = barrier
    this.#target = target
    seal.register(this)
  }

  get status(): RekeyStatus {
    this.#checkTarget()
    const { request, holders = [], given, made } = this.#attempt ?? {}
    return {
      nonce: given?.nonce ?? '',
      started: given !== undefined,
      threshold: request?.threshold ?? 0,
      shares: request?.shares ?? 0,
      progress: given?.progress ?? 0,
      required: this.#seal.config.threshold,
      fingerprints: holders.map(({ fingerprint }) => fingerprint),
      backup: request?.backup ?? false,
      requiresVerification: request?.requireVerification ?? false,
      verificationNonce: made?.verifying.nonce ?? '',
    }
  }

  /** Begins one. Throws a Refusal for what could not be done in the end, and while one is under way. */
  async start(asked: RekeyRequest): Promise<RekeyStatus> {
    const request = this.#startable(asked)
    // Not in the turn: it lasts as long as the sender of the keys likes.
    const holders = await readPgpKeys(request.pgpKeys)
    return await this.#seal.inTurn(async () => {
      this.#startable(asked)
      if (this.#barrier.isSealed) throw sealed()
      this.#attempt = { request, holders, given: new Gathering(this.#seal.idleMs, () => this.end()) }
      return this.status
    })
  }

  #startable(asked: RekeyRequest): RekeyRequest {
    this.#checkTarget()
    if (this.#attempt) throw invalid('rekey already in progress')
    return this.#isOfMachine ? this.#checkOfMachine(asked) : checkRequest(asked)
  }

  /** Takes a share of today's key (and owns it from here); gives the new shares when it was the last that was needed. */
  update(share: Buffer, nonce: string): Promise<RekeyStatus | RekeyResult> {
    return this.#seal.inTurn(async () => {
      this.#checkTarget()
      const attempt = this.#attempt
      if (!attempt) refuseShare(share, `no ${this.#target === 'unseal' ? 'barrier' : 'recovery'} rekey in progress`)
      checkNonce(share, nonce, attempt.given.nonce)
      if (attempt.made) refuseShare(share, 'the new key shares were given out: verify them, or cancel the rekey')
      const outcome = await attempt.given.offer(share, this.#seal.proofs())
      if (outcome === 'more') return this.status
      if (outcome === 'repeated') throw invalid('given key has already been provided during this generation operation')
      if (outcome === 'wrong') throw invalid(`rekey aborted: ${WRONG_SHARES}`)
      try {
        return await this.#finish(attempt, outcome)
      } finally {
        outcome.key.fill(0)
      }
    })
  }

  async #finish(attempt: Attempt, proven: Proven<KeyProof>): Promise<RekeyResult> {
    const { request, holders, given } = attempt
    await this.#seal.accept(proven)
    const key = randomBytes(KEY_BYTES)
    const keys = this.#isOfMachine ? [] : await sharesFor(key, request, holders)
    const backup = request.backup ? encodeBackup(given.nonce, holders, keys) : undefined
    const fingerprints = holders.map(({ fingerprint }) => fingerprint)
    const result = { nonce: given.nonce, keys, fingerprints, backup: request.backup }
    // Cancelled, or the barrier was sealed, while the shares were made.
    if (this.#attempt !== attempt) throw invalid('rekey aborted: it was cancelled')
    if (request.requireVerification) {
      given.end()
      attempt.made = { key, backup, verifying: this.#verification() }
      return { ...result, verificationNonce: attempt.made.verifying.nonce }
    }
    try {
      await this.#seal.replace({ target: this.#target, key, split: request, before: proven.key, backup })
    } finally {
      key.fill(0)
    }
    this.end()
    return { ...result, verificationNonce: '' }
  }

  #verification(): Gathering {
    return new Gathering(VERIFICATION_MS, () => this.end())
  }

  get verification(): VerificationStatus {
    const { request, made } = this.#making()
    const { shares, threshold } = request
    return { nonce: made.verifying.nonce, started: true, shares, threshold, progress: made.verifying.progress }
  }

  /** Takes a new share; the name of the verification when the new key counts from now on, else how far it is. */
  verify(share: Buffer, nonce: string): Promise<VerificationStatus | string> {
    return this.#seal.inTurn(async () => {
      const { request, made } = this.#making()
      checkNonce(share, nonce, made.verifying.nonce)
      const proof = { split: request, matches: (key: Buffer) => timingSafeEqual(key, made.key) }
      const outcome = await made.verifying.offer(share, [proof])
      if (outcome === 'more') return this.verification
      if (outcome === 'repeated') throw invalid('given key has already been provided during this verify operation')
      if (outcome === 'wrong') throw invalid(`rekey verification aborted: ${WRONG_SHARES}`)
      const { key } = outcome
      // Ended meanwhile, its key is all zeros: shares of that would have proved nothing.
      if (this.#attempt?.made !== made) {
        key.fill(0)
        throw invalid('rekey verification aborted: it was cancelled')
      }
      const { backup } = made
      await this.#seal.replace({ target: this.#target, key, split: request, before: undefined, backup })
      key.fill(0)
      this.end()
      return nonce
    })
  }

  /** Begins the verification anew, under another name; the new shares stay the same. */
  restartVerification(): void {
    const { made } = this.#making()
    made.verifying.end()
    made.verifying = this.#verification()
  }

  #making(): Attempt & { made: NonNullable<Attempt['made']> } {
    this.#checkTarget()
    const { made } = this.#attempt ?? {}
    if (!this.#attempt || !made) throw invalid('no rekey verification in progress')
    return { ...this.#attempt, made }
  }

  /** Ends the attempt, if there is one, and overwrites what it holds. */
  end(): void {
    const attempt = this.#attempt
    this.#attempt = undefined
    attempt?.given.end()
    attempt?.made?.verifying.end()
    attempt?.made?.key.fill(0)
  }

  /** The PGP messages of the last rekey that asked to keep them. */
  readBackup(): Backup | undefined {
    this.#checkTarget()
    const entry = this.#barrier.get(BACKUP_PATHS[this.#target])
    if (!entry) return undefined
    const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), backupSchema), entry.toString())
    if (!parsed.success) throw new Fault(`the entry ${BACKUP_PATHS[this.#target]} is damaged`)
    return parsed.output
  }

  async deleteBackup(): Promise<void> {
    this.#checkTarget()
    await this.#barrier.commit({ puts: [], deletes: [BACKUP_PATHS[this.#target]] })
  }

  get #isOfMachine(): boolean {
    return this.#target === 'unseal' && this.#seal.config.type === 'static'
  }

  #checkTarget(): void {
    if (this.#target === 'recovery' && this.#seal.config.type === 'shamir') {
      throw invalid('recovery rekeying not supported')
    }
  }

  /** Nobody gets shares of the machine's key: only the root key changes. */
  #checkOfMachine({ pgpKeys, requireVerification, backup }: RekeyRequest): RekeyRequest {
    if (pgpKeys.length > 0 || requireVerification || backup) {
      const instead = 'to change the recovery key shares use sys/rekey-recovery-key (operator rekey -target=recovery)'
      throw invalid(`the unseal key of a static seal has no shares for people: give no PGP keys; ${instead}`)
    }
    return { shares: 1, threshold: 1, pgpKeys: [], backup: false, requireVerification: false }
  }
}

function checkRequest(request: RekeyRequest): RekeyRequest {
  checkSplit(request, 'rekey seal configuration')
  const { pgpKeys, backup, shares } = request
  if (pgpKeys.length > 0 && pgpKeys.length !== shares) throw invalid('incorrect number of PGP keys for rekey')
  if (backup && pgpKeys.length === 0) {
    throw invalid('cannot request a backup of the new keys without providing PGP keys for encryption')
  }
  return request
}

function checkNonce(share: Buffer, given: string, nonce: string): void {
  if (given === nonce) return
  refuseShare(share, `incorrect nonce supplied; nonce for this rekey operation is "${nonce}"`)
}

function encodeBackup(nonce: string, holders: readonly PgpKey[], keys: readonly Buffer[]): Buffer {
  const byHolder = new Map<string, string[]>()
  holders.forEach(({ fingerprint }, at) => {
    byHolder.set(fingerprint, [...(byHolder.get(fingerprint) ?? []), keys[at]?.toString('hex') ?? ''])
  })
  const backup: Backup = { nonce, keys: Object.fromEntries(byHolder) }
  return Buffer.from(JSON.stringify(backup))
}

function invalid(why: string): Refusal {
  return new Refusal('invalid_request', why)
}
