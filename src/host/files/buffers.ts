/**
 * Buffers for bulk reads, reused, with a ceiling for the whole process.
 *
 * A stream starts with small buffers and is given large ones only after it has taken `GROW_AFTER_BYTES`: more than a
 * kernel buffers for a reader that never reads. So a caller who asks and does not read costs little, and one who reads
 * at full speed soon moves half a megabyte a system call. Large buffers are counted; when `LARGE_SETS_MAX` are lent, a
 * stream simply stays small. Memory is bounded by that plus the small buffers of the streams that are allowed at once.
 */
import { FRAME_DATA_BYTES_MAX } from '../../platform/frame.ts'

const SMALL_READ_BYTES = FRAME_DATA_BYTES_MAX
const LARGE_READ_BYTES = 8 * FRAME_DATA_BYTES_MAX
/** Room for what surrounds the base64 of one frame: a path of 4 KiB may grow sixfold when it is escaped. */
const SMALL_LABEL_BYTES = 32_768
const LARGE_LABEL_BYTES = 4096
const GROW_AFTER_BYTES = 16 * 1024 * 1024
const LARGE_SETS_MAX = 12
const SMALL_SPARE_MAX = 64
const LARGE_SPARE_MAX = 3

/** Two of each at most, made when they are first needed: a short answer needs one. */
interface BufferSet {
  readonly reads: Buffer[]
  readonly frames: Buffer[]
}

class Pool {
  readonly readBytes: number
  readonly framesBytes: number
  readonly #spare: BufferSet[] = []
  readonly #spareMax: number

  constructor(options: { readBytes: number; labelBytesMax: number; spareMax: number }) {
    const frameBytes = Math.ceil(FRAME_DATA_BYTES_MAX / 3) * 4 + options.labelBytesMax
    this.readBytes = options.readBytes
    this.framesBytes = (options.readBytes / FRAME_DATA_BYTES_MAX) * frameBytes
    this.#spareMax = options.spareMax
  }

  borrow(): BufferSet {
    return this.#spare.pop() ?? { reads: [], frames: [] }
  }

  giveBack(set: BufferSet): void {
    if (this.#spare.length < this.#spareMax) this.#spare.push(set)
  }
}

const SMALL = { readBytes: SMALL_READ_BYTES, labelBytesMax: SMALL_LABEL_BYTES, spareMax: SMALL_SPARE_MAX }
const LARGE = { readBytes: LARGE_READ_BYTES, labelBytesMax: LARGE_LABEL_BYTES, spareMax: LARGE_SPARE_MAX }
const pools = {
  small: { plain: new Pool(SMALL), framed: new Pool(SMALL) },
  large: { plain: new Pool(LARGE), framed: new Pool(LARGE) },
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
  #turn: 0 | 1 = 0
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

  /** The buffer for the next read. */
  readBuffer(): Buffer {
    const turn = this.#kind === 'plain' ? this.#turn : 0
    return (this.#held().reads[turn] ??= Buffer.allocUnsafeSlow(this.#pool.readBytes))
  }

  /** The buffer for the frames of what was read. */
  framesBuffer(): Buffer {
    return (this.#held().frames[this.#turn] ??= Buffer.allocUnsafeSlow(this.#pool.framesBytes))
  }

  /**
   * Tells that what was read is handed on, once for each chunk: the other buffers are next, so that these stay as they
   * are while they are written. A read that gave nothing is not a turn.
   */
  took(bytes: number): void {
    this.#taken += bytes
    this.#turn = this.#turn === 0 ? 1 : 0
  }

  /**
   * Gives everything back. Only when no chunk of this lease is in flight: at its end a stream yields an empty chunk
   * first, and once the chunk behind that one is asked for, everything is written.
   */
  rest(): void {
    if (!this.#set) return
    this.#pool.giveBack(this.#set)
    if (this.#large) largeLent--
    this.#large = false
    this.#set = undefined
  }

  /**
   * Ends the lease of a stream that did not come to its end: its last chunk may still be in flight, so its buffers go to
   * the collector instead of to another stream.
   */
  abandon(): void {
    if (this.#large) largeLent--
    this.#large = false
    this.#set = undefined
  }

  get #pool(): Pool {
    return pools[this.#large ? 'large' : 'small'][this.#kind]
  }

  #held(): BufferSet {
    this.#set ??= this.#pool.borrow()
    return this.#set
  }

  #grow(): void {
    // The small set may still be in flight, so it goes to the collector instead of to another stream.
    this.#set = pools.large[this.#kind].borrow()
    this.#large = true
    largeLent++
  }
}
