/** Frames as a stock client parses them, and a simple encoder as a model for the fast one. */

export interface Frame {
  readonly Data?: string
  readonly File?: string
  readonly FileEvent?: string
  readonly Offset?: number
  readonly Cursor?: string
}

const escapeBraces = (text: string) => text.replaceAll('{', '\\u007b').replaceAll('}', '\\u007d')

/** The simplest encoder of a frame. */
export function naiveFrame(frame: { data?: Buffer; file: string; event?: string; offset: number }): string {
  const parts: string[] = []
  if (frame.data && frame.data.length > 0) parts.push(`"Data":"${frame.data.toString('base64')}"`)
  if (frame.file !== '') parts.push(`"File":${escapeBraces(JSON.stringify(frame.file))}`)
  if (frame.event) parts.push(`"FileEvent":"${frame.event}"`)
  if (frame.offset !== 0) parts.push(`"Offset":${frame.offset}`)
  return `{${parts.join(',')}}`
}

/** Splits a byte stream at every `}`, which no value in a frame contains, and throws on an invalid frame. */
export class FrameReader {
  #rest: Buffer = Buffer.alloc(0)

  push(bytes: Buffer): Frame[] {
    let text = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes])
    const frames: Frame[] = []
    for (let end = text.indexOf(125); end >= 0; end = text.indexOf(125)) {
      frames.push(JSON.parse(text.toString('utf8', 0, end + 1)) as Frame)
      text = text.subarray(end + 1)
    }
    this.#rest = Buffer.from(text)
    return frames
  }

  /** Bytes of an incomplete frame. */
  get pending(): number {
    return this.#rest.length
  }
}

/** A random number generator with a seed, so that a failed run can be repeated (mulberry32). */
export class Random {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let t = this.#state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }

  /** An integer from `from` to `to`, both included. */
  between(from: number, to: number): number {
    return from + Math.floor(this.next() * (to - from + 1))
  }

  pick<T>(values: readonly [T, ...T[]]): T {
    return values[Math.floor(this.next() * values.length)] ?? values[0]
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.allocUnsafe(length)
    // One number seeds all bytes (xorshift32), because tests need megabytes.
    let state = this.between(1, 0xffff_ffff)
    for (let at = 0; at < length; at++) {
      state ^= state << 13
      state ^= state >>> 17
      state ^= state << 5
      bytes[at] = state >>> 11
    }
    return bytes
  }
}
