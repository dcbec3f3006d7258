/**
 * The chain of the lines that one server writes for one audit device. Each line ends with
 *
 *     "chain":{"id":"…","event":"start","sequence":N,"previous":"<SHA-256 of the line before>","mac":"…"}}
 *
 * `sequence` and `previous` bind a line to the one before, so `outpost audit verify` finds a line that was changed,
 * removed or added without a key and without a server. `mac` is an HMAC-SHA-256 of the text before it, under a key that
 * only an open barrier can derive: a program that may write the directory can compute every hash, and no `mac`. `id`
 * names the chain; each server has its own, so lines of one server cannot stand in for those of another. `event` marks
 * the first line of a chain (`start`) and a line before which the file was not as this server had left it (`break`).
 *
 * Lines of versions without `mac` end with `sequence` and `previous` alone. A file may begin with such lines; the line
 * with the event `start` says where they end.
 */
import { hash, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto'
import { KeyedHash } from '../../platform/keyed-hash.ts'

/** The last line that was written: its number and its SHA-256 in hexadecimal. */
export interface ChainHead {
  readonly sequence: number
  readonly hash: string
}

/** Before the first line of a device. */
export const CHAIN_START: ChainHead = { sequence: 0, hash: '0'.repeat(64) }

/** `start`: the first line of this chain. `break`: the file did not end with the line that the server had written last. */
export type ChainEvent = 'start' | 'break'

/** What the end of a line states. */
export interface Link {
  readonly sequence: number
  readonly previous: string
  readonly event?: ChainEvent
  /** Absent in lines of versions without it, as is `mac`. */
  readonly id?: string
  readonly mac?: string
}

const LINK =
  /,"chain":\{(?:"id":"([0-9a-f]{16})",)?(?:"event":"(start|break)",)?"sequence":(\d{1,15}),"previous":"([0-9a-f]{64})"(?:,"mac":"([0-9a-f]{64})")?\}\}$/
/** Longest end of a line that has the link. */
export const LINK_LENGTH_MAX = 320
/** `,"mac":"…"}}`: what a code does not cover. */
export const MAC_LENGTH = ',"mac":""}}'.length + 64

const ID_BYTES = 8
const KEY_BYTES = 32

/** A name for a new chain. */
export function newChainId(): string {
  return randomBytes(ID_BYTES).toString('hex')
}

/** Derives the key of a chain. Not an HMAC of the device's key: `sys/audit-hash` computes those for any text. */
export class ChainKey {
  readonly id: string
  readonly #hash: KeyedHash

  constructor(deviceKey: Buffer, id: string) {
    this.id = id
    this.#hash = new KeyedHash(
      Buffer.from(hkdfSync('sha256', deviceKey, 'outpost audit chain', `mac ${id}`, KEY_BYTES)),
    )
  }

  /** The code of a line; `digest` is the SHA-256 of its text before the code, in hexadecimal. */
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

/** Whether `line` (text without its end of line) has the code of this chain. */
export function hasCode(line: string, key: ChainKey): boolean {
  const { id, mac } = linkOf(line.slice(-LINK_LENGTH_MAX)) ?? {}
  return id === key.id && mac !== undefined && key.isMac(hash('sha256', line.slice(0, -MAC_LENGTH)), mac)
}

/** Whether `line` was written with the key of this device, by whatever server. */
export function hasCodeOfDevice(line: string, deviceKey: Buffer): boolean {
  const { id } = linkOf(line.slice(-LINK_LENGTH_MAX)) ?? {}
  if (id === undefined) return false
  const key = new ChainKey(deviceKey, id)
  try {
    return hasCode(line, key)
  } finally {
    key.close()
  }
}

/** A line of versions without codes: `json`, an object with at least one member, behind `head`, without its end of line. */
export function chained(json: string, { sequence, hash: previous }: ChainHead): string {
  return `${json.slice(0, -1)},"chain":{"sequence":${sequence + 1},"previous":"${previous}"}}`
}

/** A line, without its end of line, behind `head`. */
export function linked(
  json: string,
  { event, head, key, prefix }: { event?: ChainEvent | undefined; head: ChainHead; key: ChainKey; prefix: string },
): string {
  const mark = event === undefined ? '' : `"event":"${event}",`
  const link = `"id":"${key.id}",${mark}"sequence":${head.sequence + 1},"previous":"${head.hash}"`
  const text = `${prefix}${json.slice(0, -1)},"chain":{${link}`
  return `${text},"mac":"${key.mac(hash('sha256', text))}"}}`
}

/** The head that a line is; `line` is without its end of line. Undefined for text that no device has written. */
export function headOf(line: string): ChainHead | undefined {
  const link = linkOf(line.slice(-LINK_LENGTH_MAX))
  return link && { sequence: link.sequence, hash: hash('sha256', line) }
}

/** What the end of a line states. Undefined for text that no device has written. */
export function linkOf(end: string): Link | undefined {
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
