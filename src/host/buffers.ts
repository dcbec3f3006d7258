/**
 * Buffers for bulk reads, reused, with a ceiling for the whole process.
 *
 * A stream starts with small buffers and is given large ones only after it has taken `GROW_AFTER_BYTES`: more than a
 * kernel buffers for a reader that never reads. So a caller who asks and does not read costs little, and one who reads
 * at full speed soon moves half a megabyte a system call. Large buffers are counted; when `LARGE_SETS_MAX` are lent, a
 * stream simply stays small. Memory is bounded by that plus the small buffers of the streams that are allowed at once.
 */
import { FRAME_DATA_BYTES_MAX } from '../kit/frame.ts'

const SMALL_READ_BYTES = FRAME_DATA_BYTES_MAX
const LARGE_READ_BYTES = 8 * FRAME_DATA_BYTES_MAX
/** Room for what surrounds the base64 of one frame: a path of 4 KiB may grow sixfold when it is escaped. */
const SMALL_LABEL_BYTES = 32_768
const LARGE_LABEL_BYTES = 4096
const GROW_AFTER_BYTES = 16 * 1024 * 1024
const LARGE_SETS_MAX = 12
const SPARE_SETS_MAX = 8

interface BufferSet {
  readonly reads: readonly Buffer[]
  readonly frames: readonly Buffer[]
}

class Pool {
  readonly readBytes: number
  readonly labelBytesMax: number
  readonly #framed: boolean
  readonly #spare: BufferSet[] = []

  constructor(options: { readBytes: number; labelBytesMax: number; framed: boolean }) {
    this.readBytes = options.readBytes
    this.labelBytesMax = options.labelBytesMax
    this.#framed = options.framed
  }

  borrow(): BufferSet {
    const frames = this.readBytes / FRAME_DATA_BYTES_MAX
    const frameBytes = Math.ceil(FRAME_DATA_BYTES_MAX / 3) * 4 + this.labelBytesMax
    return (
      this.#spare.pop() ?? {
        reads: this.#framed
          ? [Buffer.allocUnsafeSlow(this.readBytes)]
          : [Buffer.allocUnsafeSlow(this.readBytes), Buffer.allocUnsafeSlow(this.readBytes)],
        frames: this.#framed
          ? [Buffer.allocUnsafeSlow(frames * frameBytes), Buffer.allocUnsafeSlow(frames * frameBytes)]
          : [],
      }
    )
  }

  giveBack(set: BufferSet): void {
    if (this.#spare.length < SPARE_SETS_MAX) this.#spare.push(set)
  }
}

const pools = {
  small: {
    plain: new Pool({ readBytes: SMALL_READ_BYTES, labelBytesMax: SMALL_LABEL_BYTES, framed: false }),
    framed: new Pool({ readBytes: SMALL_READ_BYTES, labelBytesMax: SMALL_LABEL_BYTES, framed: true }),
  },
  large: {
    plain: new Pool({ readBytes: LARGE_READ_BYTES, labelBytesMax: LARGE_LABEL_BYTES, framed: false }),
    framed: new Pool({ readBytes: LARGE_READ_BYTES, labelBytesMax: LARGE_LABEL_BYTES, framed: true }),
  },
}
let largeLent = 0

/**
 * What one stream holds of the pools. Nothing at all until it first reads; `rest()` gives everything back, so that a
 * follower that waits for its file to grow holds no buffer.
 */
export class BufferLease {
  readonly #kind: 'plain' | 'framed'
  #set: BufferSet | undefined
  #large = false
  #turn = 0
  #taken = 0

  constructor(options: { framed: boolean }) {
    this.#kind = options.framed ? 'framed' : 'plain'
  }

  /** Bytes to ask for in the next read, given the label that each of its frames will carry. */
  readBytes(labelBytes: number): number {
    if (!this.#large && this.#taken >= GROW_AFTER_BYTES && largeLent < LARGE_SETS_MAX) this.#grow()
    if (this.#large && labelBytes > LARGE_LABEL_BYTES) return SMALL_READ_BYTES
    return this.#large ? LARGE_READ_BYTES : SMALL_READ_BYTES
  }

  /** The buffer for the next read. When the stream is plain its bytes stay valid for one more call. */
  readBuffer(): Buffer {
    this.#turn ^= 1
    return pick(this.#held().reads, this.#turn)
  }

  /** The buffer for the frames of the last read; valid for one more call. */
  framesBuffer(): Buffer {
    return pick(this.#held().frames, this.#turn)
  }

  /** Tells that a read's bytes were handed on. */
  took(bytes: number): void {
    this.#taken += bytes
  }

  /** Gives everything back. Only when no chunk of this lease is in flight. */
  rest(): void {
    if (!this.#set) return
    pools[this.#large ? 'large' : 'small'][this.#kind].giveBack(this.#set)
    if (this.#large) largeLent--
    this.#large = false
    this.#set = undefined
  }

  #held(): BufferSet {
    this.#set ??= pools.small[this.#kind].borrow()
    return this.#set
  }

  #grow(): void {
    // The small set may still be in flight, so it goes to the collector instead of to another stream.
    this.#set = pools.large[this.#kind].borrow()
    this.#large = true
    largeLent++
  }
}

function pick(buffers: readonly Buffer[], turn: number): Buffer {
  const found = buffers[turn % buffers.length]
  if (!found) throw new Error('a plain lease has no frame buffers')
  return found
}
