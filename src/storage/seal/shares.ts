/**
 * Key shares: a key of `KEY_BYTES` bytes that any *threshold* of its *shares* make again, and fewer tell nothing about
 * (Shamir's scheme over GF(2^8); a share is one byte for each byte of the key and then its x). One share of one is the
 * key itself.
 *
 * Wrong shares give a wrong key without a word: whether it is the right one is for a `Proof` to say. Nothing here says
 * which share was wrong, because that would help whoever guesses.
 */
import { randomUUID, timingSafeEqual } from 'node:crypto'
import { combine, split } from 'shamir-secret-sharing'
import { Refusal } from '../../platform/errors.ts'
import { KEY_BYTES } from '../barrier/keyring.ts'

/** How a key is, or will be, divided. */
export interface Split {
  readonly shares: number
  readonly threshold: number
}

/** What a key must be, that was made of shares. */
export interface Proof {
  readonly split: Split
  /** True for the right key; keeps nothing of it. */
  matches(key: Buffer): boolean
}

export interface Proven<P extends Proof> {
  /** The caller's, to be overwritten when it is no longer needed. */
  readonly key: Buffer
  readonly proof: P
}

const SHARE_BYTES_MIN = 16
const SHARE_BYTES_MAX = KEY_BYTES + 1
/** Above the longest text of a share in any form, with room for white space. */
const SHARE_TEXT_MAX = 1024
const HEX = /^(?:[0-9a-f]{2})+$/i
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** What is said when shares do not make the key, whatever the reason. */
export const WRONG_SHARES =
  'the key shares that were given do not make the key of this server; none of them is kept, start again with the first'

/** Throws a Refusal for numbers that no key can be divided by; `what` names whose they are. */
export function checkSplit({ shares, threshold }: Split, what: string): void {
  const wrong = wrongNumbers(shares, threshold)
  if (wrong) throw new Refusal('invalid_request', `invalid ${what}: ${wrong}`)
}

function wrongNumbers(shares: number, threshold: number): string | undefined {
  if (shares < 1) return 'shares must be at least one'
  if (threshold < 1) return 'threshold must be at least one'
  if (shares > 255) return 'shares must be less than 256'
  if (threshold > shares) return 'threshold cannot be larger than shares'
  if (shares > 1 && threshold === 1) return 'threshold must be greater than one for multiple shares'
  return undefined
}

/** The shares of a key; they are the caller's to overwrite. */
export async function splitKey(key: Buffer, { shares, threshold }: Split): Promise<Buffer[]> {
  if (shares === 1) return [Buffer.from(key)]
  const parts = await split(new Uint8Array(key.buffer, key.byteOffset, key.length), shares, threshold)
  return parts.map((part) => Buffer.from(part.buffer, part.byteOffset, part.length))
}

/** Bytes of a share in hex or base64, as people type it. Throws a Refusal for what cannot be a share of any key. */
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

/** Overwrites a share that is not wanted, and refuses it. */
export function refuseShare(share: Buffer, why: string): never {
  share.fill(0)
  throw new Refusal('invalid_request', why)
}

function shareBytes({ shares }: Split): number {
  return shares === 1 ? KEY_BYTES : KEY_BYTES + 1
}

/** The keys that parts make when they are shares of such a split; none when they are too few. */
async function keysOf(parts: readonly Buffer[], wanted: Split): Promise<Buffer[]> {
  const fitting = parts.filter((part) => part.length === shareBytes(wanted))
  if (wanted.shares === 1) return fitting.map((part) => Buffer.from(part))
  if (fitting.length < wanted.threshold) return []
  try {
    const key = await combine(fitting.map((part) => new Uint8Array(part.buffer, part.byteOffset, part.length)))
    return [Buffer.from(key.buffer, key.byteOffset, key.length)]
  } catch {
    // Two of them have one x, or one has none: they are wrong together, as any others.
    return []
  }
}

/**
 * Shares that were given so far, in memory until there are enough or nobody gives any more for `idleMs`; then they are
 * overwritten and `onIdle` is called.
 */
export class Gathering {
  readonly #idleMs: number
  readonly #onIdle: () => void
  #parts: Buffer[] = []
  #timer: NodeJS.Timeout | undefined
  /** Of this attempt: new each time that it begins anew. */
  nonce = randomUUID()

  constructor(idleMs: number, onIdle: () => void = () => undefined) {
    this.#idleMs = idleMs
    this.#onIdle = onIdle
    this.#wait()
  }

  get progress(): number {
    return this.#parts.length
  }

  /**
   * Takes one share (and owns it from here). `more`: others are needed; `repeated`: it is there already; `wrong`: they
   * are enough for every proof and make no key; else the key. After the last two nothing of them is left.
   * Callers come one after another.
   */
  async offer<P extends Proof>(part: Buffer, proofs: readonly P[]): Promise<'more' | 'repeated' | 'wrong' | Proven<P>> {
    const lengths = proofs.map(({ split: wanted }) => shareBytes(wanted))
    if (!lengths.includes(part.length)) {
      refuseShare(part, `invalid key: a key share of this server has ${lengths[0] ?? SHARE_BYTES_MAX} bytes`)
    }
    // Every one is compared, so that how long it takes says nothing about which one it is.
    const isKnown = this.#parts.filter((known) => known.length === part.length && timingSafeEqual(known, part)).length
    if (isKnown > 0) {
      part.fill(0)
      return 'repeated'
    }
    this.#parts.push(part)
    this.#wait()
    const proven = await this.#prove(proofs)
    const enough = Math.max(...proofs.map(({ split: wanted }) => wanted.threshold))
    if (!proven && this.#parts.length < enough) return 'more'
    this.forget()
    return proven ?? 'wrong'
  }

  async #prove<P extends Proof>(proofs: readonly P[]): Promise<Proven<P> | undefined> {
    let found: Proven<P> | undefined
    for (const proof of proofs) {
      for (const key of await keysOf(this.#parts, proof.split)) {
        if (!found && proof.matches(key)) found = { key, proof }
        else key.fill(0)
      }
    }
    return found
  }

  /** Overwrites what was given; the attempt goes on with none. */
  forget(): void {
    for (const part of this.#parts) part.fill(0)
    this.#parts = []
  }

  /** Overwrites what was given and stops waiting. */
  end(): void {
    this.forget()
    clearTimeout(this.#timer)
  }

  #wait(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.end()
      this.#onIdle()
    }, this.#idleMs)
    this.#timer.unref()
  }
}
