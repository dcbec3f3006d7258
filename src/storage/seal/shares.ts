/**
 * Key shares by Shamir's secret sharing over GF(2^8): any *threshold* of the *shares* recover a key of `KEY_BYTES` bytes, and fewer reveal
 * nothing. A share has one byte per byte of the key, followed by its x coordinate. A single share is the key itself.
 *
 * Wrong shares recover a wrong key without an error, so a `KeyVerifier` checks the result. No error says which share was wrong, because
 * that would help an attacker who guesses.
 */
import { randomUUID, timingSafeEqual } from 'node:crypto'
import { combine, split } from 'shamir-secret-sharing'
import { Refusal } from '../../platform/errors.ts'
import { KEY_BYTES } from '../barrier/keyring.ts'

/** Numbers of shares of a key. */
export interface ShareSplit {
  readonly shares: number
  readonly threshold: number
}

/** Checks a recovered key. */
export interface KeyVerifier {
  readonly split: ShareSplit
  /** True for the right key. Must not keep the key. */
  matches(key: Buffer): boolean
}

export interface VerifiedKey<P extends KeyVerifier> {
  /** The caller overwrites it. */
  readonly key: Buffer
  readonly verifier: P
}

const SHARE_BYTES_MIN = 16
const SHARE_BYTES_MAX = KEY_BYTES + 1
/** Above the longest text of a share in any encoding, with space for whitespace. */
const SHARE_TEXT_MAX = 1024
const HEX = /^(?:[0-9a-f]{2})+$/i
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** The error when shares do not recover the key, for any reason. */
export const WRONG_SHARES =
  'the key shares do not recover the key of this server; all of them were discarded, start again with the first share'

/** Attempts are in memory: shares are stored nowhere. */
export const ATTEMPT_ENDED = 'it was canceled, has timed out, or ended when the active server changed; start again'

/** Throws a Refusal for invalid numbers of shares. `what` names their setting. */
export function checkSplit({ shares, threshold }: ShareSplit, what: string): void {
  const problem = splitProblem(shares, threshold)
  if (problem) throw new Refusal('invalid_request', `invalid ${what}: ${problem}`)
}

function splitProblem(shares: number, threshold: number): string | undefined {
  if (shares < 1) return 'shares must be at least one'
  if (threshold < 1) return 'threshold must be at least one'
  if (shares > 255) return 'shares must be less than 256'
  if (threshold > shares) return 'threshold cannot be larger than shares'
  if (shares > 1 && threshold === 1) return 'threshold must be greater than one for multiple shares'
  return undefined
}

/** Splits a key. The caller overwrites the shares. */
export async function splitKey(key: Buffer, { shares, threshold }: ShareSplit): Promise<Buffer[]> {
  if (shares === 1) return [Buffer.from(key)]
  const shareBuffers = await split(new Uint8Array(key.buffer, key.byteOffset, key.length), shares, threshold)
  return shareBuffers.map((share) => Buffer.from(share.buffer, share.byteOffset, share.length))
}

/** Decodes a share in hex or base64. Throws a Refusal for a malformed share. */
export function decodeShare(text: string): Buffer {
  const trimmed = text.trim()
  if (trimmed === '') throw new Refusal('invalid_request', "'key' must be specified in request body as JSON")
  if (trimmed.length > SHARE_TEXT_MAX) throw invalidKey(`key is longer than maximum ${SHARE_BYTES_MAX} bytes`)
  const hex = HEX.test(trimmed) ? Buffer.from(trimmed, 'hex') : undefined
  if (hex && hex.length >= SHARE_BYTES_MIN && hex.length <= SHARE_BYTES_MAX) return hex
  if (!BASE64.test(trimmed)) {
    if (hex) throw invalidKey(`key is ${hex.length > SHARE_BYTES_MAX ? LONGER : SHORTER}`)
    throw new Refusal('invalid_request', "'key' must be a valid hex or base64 string")
  }
  const share = Buffer.from(trimmed, 'base64')
  if (share.length < SHARE_BYTES_MIN) throw invalidKey(`key is ${SHORTER}`)
  if (share.length > SHARE_BYTES_MAX) throw invalidKey(`key is ${LONGER}`)
  return share
}

const LONGER = `longer than maximum ${SHARE_BYTES_MAX} bytes`
const SHORTER = `shorter than minimum ${SHARE_BYTES_MIN} bytes`

function invalidKey(why: string): Refusal {
  return new Refusal('invalid_request', `invalid key: ${why}`)
}

/** Overwrites a share and throws a Refusal. */
export function refuseShare(share: Buffer, why: string): never {
  share.fill(0)
  throw new Refusal('invalid_request', why)
}

function shareBytes({ shares }: ShareSplit): number {
  return shares === 1 ? KEY_BYTES : KEY_BYTES + 1
}

/** The keys that these shares recover for a split; empty for too few shares. */
async function recoveredKeys(shareBuffers: readonly Buffer[], scheme: ShareSplit): Promise<Buffer[]> {
  const fitting = shareBuffers.filter((share) => share.length === shareBytes(scheme))
  if (scheme.shares === 1) return fitting.map((share) => Buffer.from(share))
  if (fitting.length < scheme.threshold) return []
  try {
    const key = await combine(fitting.map((share) => new Uint8Array(share.buffer, share.byteOffset, share.length)))
    return [Buffer.from(key.buffer, key.byteOffset, key.length)]
  } catch {
    // Invalid x coordinates: wrong shares, like any others.
    return []
  }
}

/** Collects shares in memory until the threshold is reached. After `idleMs` without a new share it overwrites them and calls `onIdle`. */
export class ShareCollector {
  readonly #idleMs: number
  readonly #onIdle: () => void
  #shares: Buffer[] = []
  #timer: NodeJS.Timeout | undefined
  /** Identifies the attempt. */
  nonce = randomUUID()

  constructor(idleMs: number, onIdle: () => void = () => undefined) {
    this.#idleMs = idleMs
    this.#onIdle = onIdle
    this.#restartTimer()
  }

  get progress(): number {
    return this.#shares.length
  }

  /**
   * Takes ownership of a share. Returns `more` below the threshold, `repeated` for a known share, `wrong` when enough shares recover no
   * valid key, and else the key. After the last two the shares are overwritten. Calls must not overlap.
   */
  async offer<P extends KeyVerifier>(
    share: Buffer,
    verifiers: readonly P[],
  ): Promise<'more' | 'repeated' | 'wrong' | VerifiedKey<P>> {
    const lengths = verifiers.map(({ split: scheme }) => shareBytes(scheme))
    if (!lengths.includes(share.length)) {
      refuseShare(share, `invalid key: a key share of this server has ${lengths[0] ?? SHARE_BYTES_MAX} bytes`)
    }
    // Compares with every share, so that the time does not depend on the position of a match.
    const knownCount = this.#shares.filter(
      (known) => known.length === share.length && timingSafeEqual(known, share),
    ).length
    if (knownCount > 0) {
      share.fill(0)
      return 'repeated'
    }
    this.#shares.push(share)
    this.#restartTimer()
    const verified = await this.#recover(verifiers)
    const enough = Math.max(...verifiers.map(({ split: scheme }) => scheme.threshold))
    if (!verified && this.#shares.length < enough) return 'more'
    this.clear()
    return verified ?? 'wrong'
  }

  async #recover<P extends KeyVerifier>(verifiers: readonly P[]): Promise<VerifiedKey<P> | undefined> {
    let verified: VerifiedKey<P> | undefined
    for (const verifier of verifiers) {
      for (const key of await recoveredKeys(this.#shares, verifier.split)) {
        if (!verified && verifier.matches(key)) verified = { key, verifier }
        else key.fill(0)
      }
    }
    return verified
  }

  /** Overwrites the shares; the attempt continues without any. */
  clear(): void {
    for (const share of this.#shares) share.fill(0)
    this.#shares = []
  }

  /** Overwrites the shares and stops the timer. */
  end(): void {
    this.clear()
    clearTimeout(this.#timer)
  }

  #restartTimer(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.end()
      this.#onIdle()
    }, this.#idleMs)
    this.#timer.unref()
  }
}
