/**
 * A rekey: with a threshold of the current key shares it generates a new key and its shares, for the same or other holders. With
 * verification, the new key takes effect only after a threshold of the new shares was entered.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import * as v from 'valibot'
import { Fault, Refusal, sealed } from '../../platform/errors.ts'
import type { Barrier } from '../barrier/barrier.ts'
import { KEY_BYTES } from '../barrier/keyring.ts'
import { type PgpKey, readPgpKeys } from './pgp.ts'
import { sharesFor } from './initial-shares.ts'
import { BACKUP_PATHS } from '../barrier/seal-entries.ts'
import type { SealKeyVerifier, RekeyTarget } from './seal-keys.ts'
import type { Seal } from './seal.ts'
import {
  ATTEMPT_ENDED,
  checkSplit,
  ShareCollector,
  type VerifiedKey,
  refuseShare,
  type ShareSplit,
  WRONG_SHARES,
} from './shares.ts'

export interface RekeyRequest extends ShareSplit {
  readonly pgpKeys: readonly string[]
  readonly backup: boolean
  readonly requireVerification: boolean
}

export interface RekeyStatus extends ShareSplit {
  readonly nonce: string
  readonly started: boolean
  /** Number of entered shares of the current key, and their threshold. */
  readonly progress: number
  readonly required: number
  readonly fingerprints: readonly string[]
  readonly backup: boolean
  readonly requiresVerification: boolean
  /** Empty until the new shares wait for verification. */
  readonly verificationNonce: string
}

export interface RekeyResult {
  readonly nonce: string
  /** Shares, or PGP messages with their hex form. Empty for the unseal key of a static seal. */
  readonly keys: readonly Buffer[]
  readonly fingerprints: readonly string[]
  readonly backup: boolean
  /** Empty: the new key is in effect. */
  readonly verificationNonce: string
}

export interface VerificationStatus extends ShareSplit {
  readonly nonce: string
  readonly started: boolean
  readonly progress: number
}

export interface ShareBackup {
  readonly nonce: string
  /** PGP messages in hex by fingerprint. */
  readonly keys: Readonly<Record<string, readonly string[]>>
}

interface RekeyAttempt {
  readonly request: RekeyRequest
  readonly holders: readonly PgpKey[]
  readonly shares: ShareCollector
  /** The new key during verification. */
  unverified?: { readonly key: Buffer; readonly backup: Buffer | undefined; shares: ShareCollector }
}

/** Time limit of a verification: the new shares must reach their holders first. */
const VERIFICATION_TIMEOUT_MS = 24 * 3_600_000
const backupSchema = v.object({ nonce: v.string(), keys: v.record(v.string(), v.array(v.string())) })

export class Rekey {
  readonly #seal: Seal
  readonly #barrier: Barrier
  readonly #target: RekeyTarget
  #attempt: RekeyAttempt | undefined

  constructor(seal: Seal, barrier: Barrier, target: RekeyTarget) {
    this.#seal = seal
    this.#barrier = barrier
    this.#target = target
    seal.register(this)
  }

  get status(): RekeyStatus {
    this.#checkTarget()
    const { request, holders = [], shares, unverified } = this.#attempt ?? {}
    return {
      nonce: shares?.nonce ?? '',
      started: shares !== undefined,
      threshold: request?.threshold ?? 0,
      shares: request?.shares ?? 0,
      progress: shares?.progress ?? 0,
      required: this.#seal.config.threshold,
      fingerprints: holders.map(({ fingerprint }) => fingerprint),
      backup: request?.backup ?? false,
      requiresVerification: request?.requireVerification ?? false,
      verificationNonce: unverified?.shares.nonce ?? '',
    }
  }

  /** Starts a rekey. Throws a Refusal for an invalid request, and while one is in progress. */
  async start(requested: RekeyRequest): Promise<RekeyStatus> {
    const request = this.#validated(requested)
    // Outside the lock: the sender of the keys controls how long it takes.
    const holders = await readPgpKeys(request.pgpKeys)
    return await this.#seal.withLock(async () => {
      this.#validated(requested)
      if (this.#barrier.isSealed) throw sealed()
      this.#attempt = { request, holders, shares: new ShareCollector(this.#seal.idleMs, () => this.end()) }
      return this.status
    })
  }

  #validated(requested: RekeyRequest): RekeyRequest {
    this.#checkTarget()
    if (this.#attempt) throw invalid('rekey already in progress')
    return this.#hasNoShares ? this.#checkStaticSeal(requested) : checkRequest(requested)
  }

  /** Takes ownership of a share of the current key. Returns the new shares with the last required one. */
  update(share: Buffer, nonce: string): Promise<RekeyStatus | RekeyResult> {
    return this.#seal.withLock(async () => {
      this.#checkTarget()
      const attempt = this.#attempt
      if (!attempt)
        refuseShare(
          share,
          `no ${this.#target === 'unseal' ? 'barrier' : 'recovery'} rekey in progress: ${ATTEMPT_ENDED}`,
        )
      checkNonce(share, nonce, attempt.shares.nonce)
      if (attempt.unverified) refuseShare(share, 'the new key shares were issued: verify them, or cancel the rekey')
      const result = await attempt.shares.offer(share, this.#seal.verifiers())
      if (result === 'more') return this.status
      if (result === 'repeated') throw invalid('given key has already been provided during this generation operation')
      if (result === 'wrong') throw invalid(`rekey aborted: ${WRONG_SHARES}`)
      try {
        return await this.#finish(attempt, result)
      } finally {
        result.key.fill(0)
      }
    })
  }

  async #finish(attempt: RekeyAttempt, verified: VerifiedKey<SealKeyVerifier>): Promise<RekeyResult> {
    const { request, holders, shares } = attempt
    await this.#seal.accept(verified)
    const key = randomBytes(KEY_BYTES)
    const keys = this.#hasNoShares ? [] : await sharesFor(key, request, holders)
    const backup = request.backup ? encodeBackup(shares.nonce, holders, keys) : undefined
    const fingerprints = holders.map(({ fingerprint }) => fingerprint)
    const result = { nonce: shares.nonce, keys, fingerprints, backup: request.backup }
    // Canceled, or the barrier was sealed, while the shares were encrypted.
    if (this.#attempt !== attempt) throw invalid('rekey aborted: it was canceled')
    if (request.requireVerification) {
      shares.end()
      attempt.unverified = { key, backup, shares: this.#verificationShares() }
      return { ...result, verificationNonce: attempt.unverified.shares.nonce }
    }
    try {
      await this.#seal.replace({ target: this.#target, key, split: request, before: verified.key, backup })
    } finally {
      key.fill(0)
    }
    this.end()
    return { ...result, verificationNonce: '' }
  }

  #verificationShares(): ShareCollector {
    return new ShareCollector(VERIFICATION_TIMEOUT_MS, () => this.end())
  }

  get verification(): VerificationStatus {
    const { request, unverified } = this.#verification()
    const { shares, threshold } = request
    return { nonce: unverified.shares.nonce, started: true, shares, threshold, progress: unverified.shares.progress }
  }

  /** Takes ownership of a new share. Returns the nonce once the new key is in effect, else the progress. */
  verify(share: Buffer, nonce: string): Promise<VerificationStatus | string> {
    return this.#seal.withLock(async () => {
      const { request, unverified } = this.#verification()
      checkNonce(share, nonce, unverified.shares.nonce)
      const verifier = { split: request, matches: (key: Buffer) => timingSafeEqual(key, unverified.key) }
      const result = await unverified.shares.offer(share, [verifier])
      if (result === 'more') return this.verification
      if (result === 'repeated') throw invalid('given key has already been provided during this verify operation')
      if (result === 'wrong') throw invalid(`rekey verification aborted: ${WRONG_SHARES}`)
      const { key } = result
      // If the attempt was ended meanwhile, the compared key was zeros.
      if (this.#attempt?.unverified !== unverified) {
        key.fill(0)
        throw invalid('rekey verification aborted: it was canceled')
      }
      const { backup } = unverified
      await this.#seal.replace({ target: this.#target, key, split: request, before: undefined, backup })
      key.fill(0)
      this.end()
      return nonce
    })
  }

  /** Restarts the verification with a new nonce. The new shares stay the same. */
  restartVerification(): void {
    const { unverified } = this.#verification()
    unverified.shares.end()
    unverified.shares = this.#verificationShares()
  }

  #verification(): RekeyAttempt & { unverified: NonNullable<RekeyAttempt['unverified']> } {
    this.#checkTarget()
    const { unverified } = this.#attempt ?? {}
    if (!this.#attempt || !unverified) throw invalid(`no rekey verification in progress: ${ATTEMPT_ENDED}`)
    return { ...this.#attempt, unverified }
  }

  /** Cancels the attempt, if there is one, and overwrites its keys and shares. */
  end(): void {
    const attempt = this.#attempt
    this.#attempt = undefined
    attempt?.shares.end()
    attempt?.unverified?.shares.end()
    attempt?.unverified?.key.fill(0)
  }

  /** The stored PGP messages of the last rekey with a backup. */
  readBackup(): ShareBackup | undefined {
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

  get #hasNoShares(): boolean {
    return this.#target === 'unseal' && this.#seal.config.type === 'static'
  }

  #checkTarget(): void {
    if (this.#target === 'recovery' && this.#seal.config.type === 'shamir') {
      throw invalid('recovery rekeying not supported')
    }
  }

  /** The unseal key of a static seal has no shares: only the root key changes. */
  #checkStaticSeal({ pgpKeys, requireVerification, backup }: RekeyRequest): RekeyRequest {
    if (pgpKeys.length > 0 || requireVerification || backup) {
      const instead = 'to change the recovery key shares use sys/rekey-recovery-key (operator rekey -target=recovery)'
      throw invalid(
        `the unseal key of a static seal has no shares: PGP keys, verification and backup are not allowed; ${instead}`,
      )
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

function checkNonce(share: Buffer, givenNonce: string, nonce: string): void {
  if (givenNonce === nonce) return
  refuseShare(share, `incorrect nonce supplied; nonce for this rekey operation is "${nonce}"`)
}

function encodeBackup(nonce: string, holders: readonly PgpKey[], keys: readonly Buffer[]): Buffer {
  const byHolder = new Map<string, string[]>()
  holders.forEach(({ fingerprint }, at) => {
    byHolder.set(fingerprint, [...(byHolder.get(fingerprint) ?? []), keys[at]?.toString('hex') ?? ''])
  })
  const backup: ShareBackup = { nonce, keys: Object.fromEntries(byHolder) }
  return Buffer.from(JSON.stringify(backup))
}

function invalid(why: string): Refusal {
  return new Refusal('invalid_request', why)
}
