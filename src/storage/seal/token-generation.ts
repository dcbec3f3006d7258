/**
 * Generates a privileged token (a root token, a DR operation token) with a threshold of key shares and without a token. The result is
 * encoded, so that the holder of the last share cannot use it: with a one-time password that only the initiator knows, or encrypted to
 * a PGP key.
 *
 * The token is encoded before it is valid, so a failed attempt leaves no valid token.
 */
import { randomInt } from 'node:crypto'
import { Refusal, sealed } from '../../platform/errors.ts'
import { type PgpKey, readPgpKey } from './pgp.ts'
import type { SealKeyVerifier } from './seal-keys.ts'
import type { Seal } from './seal.ts'
import { ATTEMPT_ENDED, ShareCollector, type VerifiedKey, refuseShare, WRONG_SHARES } from './shares.ts'

/** Creates the tokens of one kind. */
export interface TokenFactory {
  /** Length of every token, in ASCII characters. */
  readonly tokenLength: number
  /** The error for a wrong nonce does not contain the right one, because callers need no token. */
  readonly hidesNonce?: boolean
  /** Creates a token that becomes valid when `commit` resolves. */
  create(): { readonly token: string; readonly commit: () => Promise<unknown> }
}

export interface GenerationStatus {
  readonly nonce: string
  readonly started: boolean
  readonly progress: number
  readonly required: number
  readonly complete: boolean
  readonly encodedToken: string
  readonly fingerprint: string
  /** Only in the response that starts an attempt, if the server generated the password. */
  readonly otp: string
  readonly otpLength: number
}

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

interface GenerationAttempt {
  readonly shares: ShareCollector
  readonly encode: (token: string) => Promise<string>
  readonly fingerprint: string
}

export class TokenGeneration {
  readonly #seal: Seal
  readonly #barrier: { readonly isSealed: boolean }
  readonly #source: TokenFactory
  #attempt: GenerationAttempt | undefined

  /** An attempt cannot start while `barrier` is sealed. */
  constructor(seal: Seal, barrier: { readonly isSealed: boolean }, source: TokenFactory) {
    this.#seal = seal
    this.#barrier = barrier
    this.#source = source
    seal.register(this)
  }

  get status(): GenerationStatus {
    const { shares, fingerprint = '' } = this.#attempt ?? {}
    return {
      nonce: shares?.nonce ?? '',
      started: shares !== undefined,
      progress: shares?.progress ?? 0,
      required: this.#seal.config.threshold,
      complete: false,
      encodedToken: '',
      fingerprint,
      otp: '',
      otpLength: this.#source.tokenLength,
    }
  }

  /**
   * Starts an attempt. The token will be encoded with the caller's one-time password, else encrypted to the PGP key, else encoded with a
   * generated password, which only this response has. Throws a Refusal for invalid input, and while an attempt is in progress.
   */
  async start({ otp, pgpKey }: { readonly otp: string; readonly pgpKey: string }): Promise<GenerationStatus> {
    const { tokenLength } = this.#source
    if (otp !== '' && Buffer.byteLength(otp) !== tokenLength) {
      throw invalid(`OTP string has incorrect length: it must have ${tokenLength} characters`)
    }
    const check = () => {
      if (this.#attempt) throw invalid('root generation already in progress')
    }
    check()
    // Outside the lock: the sender of the key controls how long it takes.
    const owner = otp === '' && pgpKey !== '' ? await readPgpKey(pgpKey) : undefined
    return await this.#seal.withLock(async () => {
      check()
      if (this.#barrier.isSealed) throw sealed()
      const generatedOtp = otp === '' && !owner ? randomPassword(tokenLength) : ''
      this.#attempt = {
        shares: new ShareCollector(this.#seal.idleMs, () => this.end()),
        encode: owner ? encodeFor(owner) : async (token) => encodeToken(token, otp || generatedOtp),
        fingerprint: owner?.fingerprint ?? '',
      }
      return { ...this.status, otp: generatedOtp }
    })
  }

  /** Takes ownership of a share. With the last required share, the status contains the encoded token. */
  update(share: Buffer, nonce: string): Promise<GenerationStatus> {
    return this.#seal.withLock(async () => {
      const attempt = this.#attempt
      if (!attempt) refuseShare(share, `no root generation in progress: ${ATTEMPT_ENDED}`)
      const { shares } = attempt
      if (nonce !== shares.nonce) {
        const expected = `; nonce for this root generation operation is "${shares.nonce}"`
        refuseShare(share, `incorrect nonce supplied${this.#source.hidesNonce ? '' : expected}`)
      }
      const result = await shares.offer(share, this.#seal.verifiers())
      if (result === 'more') return this.status
      if (result === 'repeated') throw invalid('given key has already been provided during this generation operation')
      if (result === 'wrong') throw invalid(`root generation aborted: ${WRONG_SHARES}`)
      return this.#finish(attempt, result)
    })
  }

  async #finish(attempt: GenerationAttempt, verified: VerifiedKey<SealKeyVerifier>): Promise<GenerationStatus> {
    try {
      await this.#seal.accept(verified)
    } finally {
      verified.key.fill(0)
    }
    const { token, commit } = this.#source.create()
    const encodedToken = await attempt.encode(token)
    if (this.#attempt !== attempt) throw invalid('root generation aborted: it was canceled')
    await commit()
    const { status } = this
    this.end()
    const { nonce, fingerprint } = { nonce: attempt.shares.nonce, fingerprint: attempt.fingerprint }
    return { ...status, nonce, fingerprint, started: true, complete: true, progress: status.required, encodedToken }
  }

  /** Cancels the attempt, if there is one. */
  end(): void {
    this.#attempt?.shares.end()
    this.#attempt = undefined
  }
}

/** XORs the token with a one-time password of the same length. Returns base64 without padding. */
export function encodeToken(token: string, otp: string): string {
  return xor(Buffer.from(token), Buffer.from(otp)).toString('base64').replace(/=+$/, '')
}

/** Reverses `encodeToken`. Throws a Refusal when the lengths differ. */
export function decodeToken(encoded: string, otp: string): string {
  const bytes = Buffer.from(encoded, 'base64')
  const password = Buffer.from(otp)
  if (bytes.length === 0 || bytes.length !== password.length) {
    throw invalid('the encoded token and the one-time password do not have the same length')
  }
  return xor(bytes, password).toString()
}

function xor(a: Buffer, b: Buffer): Buffer {
  return Buffer.from(a.map((byte, at) => byte ^ (b[at] ?? 0)))
}

function encodeFor(owner: PgpKey): (token: string) => Promise<string> {
  return async (token) => (await owner.encrypt(token)).toString('base64')
}

function randomPassword(length: number): string {
  return Array.from({ length }, () => BASE62.charAt(randomInt(BASE62.length))).join('')
}

function invalid(why: string): Refusal {
  return new Refusal('invalid_request', why)
}
