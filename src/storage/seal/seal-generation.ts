/**
 * An attempt to make a token of great power (a root token, a DR operation token) with enough key shares and no token. What
 * comes out is encoded, so that whoever brings the last share does not have it: with a one-time password that only who
 * began the attempt knows, or for the owner of a PGP key.
 *
 * The token is encoded before it is valid: an attempt that fails leaves no token that nobody has.
 */
import { randomInt } from 'node:crypto'
import { Refusal, sealed } from '../../platform/errors.ts'
import { type PgpKey, readPgpKey } from './pgp.ts'
import type { KeyProof } from './seal-keys.ts'
import type { Seal } from './seal.ts'
import { Gathering, type Proven, refuseShare, WRONG_SHARES } from './shares.ts'

/** Where the token comes from. */
export interface TokenSource {
  /** Characters of every token that it makes; all of them ASCII. */
  readonly tokenLength: number
  /** Who gives a wrong nonce is not told the right one: callers need no token. */
  readonly hidesNonce?: boolean
  /** A token that is not valid yet; `commit` resolves when it is. */
  make(): { readonly token: string; readonly commit: () => Promise<unknown> }
}

export interface GenerationStatus {
  readonly nonce: string
  readonly started: boolean
  readonly progress: number
  readonly required: number
  readonly complete: boolean
  readonly encodedToken: string
  readonly fingerprint: string
  /** Only in the answer that begins an attempt, and only when the server made it. */
  readonly otp: string
  readonly otpLength: number
}

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

interface Attempt {
  readonly given: Gathering
  readonly encode: (token: string) => Promise<string>
  readonly fingerprint: string
}

export class Generation {
  readonly #seal: Seal
  readonly #barrier: { readonly isSealed: boolean }
  readonly #source: TokenSource
  #attempt: Attempt | undefined

  /** `barrier`, or what stands for it: nothing begins while it is sealed. */
  constructor(seal: Seal, barrier: { readonly isSealed: boolean }, source: TokenSource) {
    this.#seal = seal
    this.#barrier = barrier
    this.#source = source
    seal.register(this)
  }

  get status(): GenerationStatus {
    const { given, fingerprint = '' } = this.#attempt ?? {}
    return {
      nonce: given?.nonce ?? '',
      started: given !== undefined,
      progress: given?.progress ?? 0,
      required: this.#seal.config.threshold,
      complete: false,
      encodedToken: '',
      fingerprint,
      otp: '',
      otpLength: this.#source.tokenLength,
    }
  }

  /**
   * Begins one. With a one-time password of the caller's (which wins), else for a PGP key, else with a password that is
   * made here and told once. Throws a Refusal for what could not be done in the end, and while one is under way.
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
    // Not in the turn: it lasts as long as the sender of the key likes.
    const owner = otp === '' && pgpKey !== '' ? await readPgpKey(pgpKey) : undefined
    return await this.#seal.inTurn(async () => {
      check()
      if (this.#barrier.isSealed) throw sealed()
      const made = otp === '' && !owner ? freshPassword(tokenLength) : ''
      this.#attempt = {
        given: new Gathering(this.#seal.idleMs, () => this.end()),
        encode: owner ? encodeFor(owner) : async (token) => encodeToken(token, otp || made),
        fingerprint: owner?.fingerprint ?? '',
      }
      return { ...this.status, otp: made }
    })
  }

  /** Takes a share (and owns it from here); the encoded token with the last that was needed. */
  update(share: Buffer, nonce: string): Promise<GenerationStatus> {
    return this.#seal.inTurn(async () => {
      const attempt = this.#attempt
      if (!attempt) refuseShare(share, 'no root generation in progress')
      const { given } = attempt
      if (nonce !== given.nonce) {
        const right = `; nonce for this root generation operation is "${given.nonce}"`
        refuseShare(share, `incorrect nonce supplied${this.#source.hidesNonce ? '' : right}`)
      }
      const outcome = await given.offer(share, this.#seal.proofs())
      if (outcome === 'more') return this.status
      if (outcome === 'repeated') throw invalid('given key has already been provided during this generation operation')
      if (outcome === 'wrong') throw invalid(`root generation aborted: ${WRONG_SHARES}`)
      return this.#finish(attempt, outcome)
    })
  }

  async #finish(attempt: Attempt, proven: Proven<KeyProof>): Promise<GenerationStatus> {
    try {
      await this.#seal.accept(proven)
    } finally {
      proven.key.fill(0)
    }
    const { token, commit } = this.#source.make()
    const encodedToken = await attempt.encode(token)
    if (this.#attempt !== attempt) throw invalid('root generation aborted: it was cancelled')
    await commit()
    const { status } = this
    this.end()
    const { nonce, fingerprint } = { nonce: attempt.given.nonce, fingerprint: attempt.fingerprint }
    return { ...status, nonce, fingerprint, started: true, complete: true, progress: status.required, encodedToken }
  }

  /** Ends the attempt, if there is one. */
  end(): void {
    this.#attempt?.given.end()
    this.#attempt = undefined
  }
}

/** The token, hidden with a one-time password of its length: base64 without padding of one XOR the other. */
export function encodeToken(token: string, otp: string): string {
  return xor(Buffer.from(token), Buffer.from(otp)).toString('base64').replace(/=+$/, '')
}

/** What was hidden so. Throws a Refusal when the two cannot belong together. */
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

function freshPassword(length: number): string {
  return Array.from({ length }, () => BASE62.charAt(randomInt(BASE62.length))).join('')
}

function invalid(why: string): Refusal {
  return new Refusal('invalid_request', why)
}
