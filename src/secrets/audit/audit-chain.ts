/**
 * The chain of the lines that one server writes to one audit device. Each line ends with
 *
 *     "chain":{"id":"…","event":"start","sequence":N,"previous":"<SHA-256 of the line before>","mac":"…"}}
 *
 * `sequence` and `previous` bind a line to its predecessor, so `outpost audit verify` detects changed, removed and inserted lines
 * without a key and without a server. `mac` is an HMAC-SHA-256 of the text before it under a key that only an unsealed barrier can
 * derive: a program that may write the file can compute every hash, but no `mac`. `id` identifies the chain. Each server has
 * its own, so lines of one server cannot replace those of another. `event` marks the first line of a chain (`start`) and a line
 * before which the file was changed by another program (`break`).
 *
 * Lines of versions without `mac` end with `sequence` and `previous`. A file may start with such lines, up to the line with the
 * event `start`.
 */
import { hash, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto'
import { KeyedHash } from '../../platform/keyed-hash.ts'

/** The number of a line and its SHA-256 in hexadecimal. */
export interface ChainHead {
  readonly sequence: number
  readonly hash: string
}

/** The head before the first line. */
export const CHAIN_START: ChainHead = { sequence: 0, hash: '0'.repeat(64) }

/** `start`: the first line of the chain. `break`: the file did not end with the last line that the server had written. */
export type ChainEvent = 'start' | 'break'

/** The members of `chain` in a line. */
export interface ChainLink {
  readonly sequence: number
  readonly previous: string
  readonly event?: ChainEvent
  /** Absent together with `mac` in lines of old versions. */
  readonly id?: string
  readonly mac?: string
}

const LINK =
  /,"chain":\{(?:"id":"([0-9a-f]{16})",)?(?:"event":"(start|break)",)?"sequence":(\d{1,15}),"previous":"([0-9a-f]{64})"(?:,"mac":"([0-9a-f]{64})")?\}\}$/
/** Maximum length of the end of a line that contains the link */
export const LINK_LENGTH_MAX = 320
/** Length of `,"mac":"…"}}`, which the MAC does not cover */
export const MAC_LENGTH = ',"mac":""}}'.length + 64

const ID_BYTES = 8
const KEY_BYTES = 32

export function newChainId(): string {
  return randomBytes(ID_BYTES).toString('hex')
}

/** The MAC key of a chain. It is derived by HKDF, because `sys/audit-hash` computes the HMAC of any text under the device's key. */
export class ChainKey {
  readonly id: string
  readonly #hash: KeyedHash

  constructor(deviceKey: Buffer, id: string) {
    this.id = id
    this.#hash = new KeyedHash(
      Buffer.from(hkdfSync('sha256', deviceKey, 'outpost audit chain', `mac ${id}`, KEY_BYTES)),
    )
  }

  /** The MAC of a line. `digest`: the SHA-256 of the text before the MAC, in hexadecimal. */
  mac(digest: string): string {
    return this.#hash.digest(digest, 'hex')
  }

  /** Compares in constant time. */
  isMac(digest: string, mac: string): boolean {
    const [own, given] = [Buffer.from(this.mac(digest)), Buffer.from(mac)]
    return own.length === given.length && timingSafeEqual(own, given)
  }

  /** Overwrites the key. */
  close(): void {
    this.#hash.close()
  }
}

/** True if `line`, without its newline, has a valid MAC of this chain. */
export function hasValidMac(line: string, key: ChainKey): boolean {
  const { id, mac } = linkOf(line.slice(-LINK_LENGTH_MAX)) ?? {}
  return id === key.id && mac !== undefined && key.isMac(hash('sha256', line.slice(0, -MAC_LENGTH)), mac)
}

/** True if `line` has a valid MAC under the key of this device, of any server's chain. */
export function hasValidDeviceMac(line: string, deviceKey: Buffer): boolean {
  const { id } = linkOf(line.slice(-LINK_LENGTH_MAX)) ?? {}
  if (id === undefined) return false
  const key = new ChainKey(deviceKey, id)
  try {
    return hasValidMac(line, key)
  } finally {
    key.close()
  }
}

/** Formats a line of old versions without a MAC. `json` must be an object with at least one member. */
export function formatLegacyLine(json: string, { sequence, hash: previous }: ChainHead): string {
  return `${json.slice(0, -1)},"chain":{"sequence":${sequence + 1},"previous":"${previous}"}}`
}

/** Formats the line that follows `head`, without its newline. */
export function formatLine(
  json: string,
  { event, head, key, prefix }: { event?: ChainEvent | undefined; head: ChainHead; key: ChainKey; prefix: string },
): string {
  const mark = event === undefined ? '' : `"event":"${event}",`
  const link = `"id":"${key.id}",${mark}"sequence":${head.sequence + 1},"previous":"${head.hash}"`
  const text = `${prefix}${json.slice(0, -1)},"chain":{${link}`
  return `${text},"mac":"${key.mac(hash('sha256', text))}"}}`
}

/** The head after `line`, which is without its newline. Undefined for text that no device has written. */
export function headOf(line: string): ChainHead | undefined {
  const link = linkOf(line.slice(-LINK_LENGTH_MAX))
  return link && { sequence: link.sequence, hash: hash('sha256', line) }
}

/** Parses the link at the end of a line. Undefined for text that no device has written. */
export function linkOf(end: string): ChainLink | undefined {
  const [, id, event, sequence, previous, mac] = LINK.exec(end) ?? []
  if (sequence === undefined || previous === undefined || (id === undefined) !== (mac === undefined)) return undefined
  const mark = event === 'start' || event === 'break' ? { event } : {}
  return {
    sequence: Number(sequence),
    previous,
    ...(id !== undefined && mac !== undefined && { id, mac }),
    ...(mark as { event?: ChainEvent }),
  }
}
