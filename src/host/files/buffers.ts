/**
 * Reusable buffers for bulk reads, with a limit for the whole process.
 *
 * A stream starts with small buffers and gets large ones only after it has sent `GROW_AFTER_BYTES`, which is more than the
 * kernel buffers for a client that never reads. So a client that does not read costs little, and a client that reads at full
 * speed soon gets half a megabyte per system call. At most `LARGE_SETS_MAX` large sets are in use; other streams keep small
 * buffers. Memory is bounded by the large sets plus the small buffers of the permitted streams.
 */
import { FRAME_DATA_BYTES_MAX } from '../../platform/stream-frame.ts'

const SMALL_READ_BYTES = FRAME_DATA_BYTES_MAX
const LARGE_READ_BYTES = 8 * FRAME_DATA_BYTES_MAX
/** Space for the parts of a frame around its base64: a path of 4 KiB may grow sixfold when it is escaped. */
const SMALL_LABEL_BYTES = 32_768
const LARGE_LABEL_BYTES = 4096
const GROW_AFTER_BYTES = 16 * 1024 * 1024
const LARGE_SETS_MAX = 12
const SMALL_SPARE_MAX = 64
const LARGE_SPARE_MAX = 3

/** At most two of each, allocated on first use: a short response needs one. */
interface BufferSet {
  readonly reads: Buffer[]
  readonly frames: Buffer[]
}

class BufferPool {
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

  take(): BufferSet {
    return this.#spare.pop() ?? { reads: [], frames: [] }
  }

  put(set: BufferSet): void {
    if (this.#spare.length < this.#spareMax) this.#spare.push(set)
  }
}

const SMALL = { readBytes: SMALL_READ_BYTES, labelBytesMax: SMALL_LABEL_BYTES, spareMax: SMALL_SPARE_MAX }
const LARGE = { readBytes: LARGE_READ_BYTES, labelBytesMax: LARGE_LABEL_BYTES, spareMax: LARGE_SPARE_MAX }
const pools = {
  small: { plain: new BufferPool(SMALL), framed: new BufferPool(SMALL) },
  large: { plain: new BufferPool(LARGE), framed: new BufferPool(LARGE) },
}
let largeSetsInUse = 0

/**
 * The buffers of one stream. It holds none before its first read and none after `returnBuffers`, so a follower that waits
 * for its file to grow holds no buffer.
 */
export class BufferLease {
  readonly #kind: 'plain' | 'framed'
  #set: BufferSet | undefined
  #large = false
  #slot: 0 | 1 = 0
  #sentBytes = 0

  constructor(options: { framed: boolean }) {
    this.#kind = options.framed ? 'framed' : 'plain'
  }

  /** Length of the next read. `labelBytes` is the length of the label in each of its frames. */
  readBytes(labelBytes: number): number {
    if (!this.#large && this.#sentBytes >= GROW_AFTER_BYTES && largeSetsInUse < LARGE_SETS_MAX) this.#grow()
    if (this.#large && labelBytes > LARGE_LABEL_BYTES) return SMALL_READ_BYTES
    return this.#large ? LARGE_READ_BYTES : SMALL_READ_BYTES
  }

  /** The buffer for the next read. */
  readBuffer(): Buffer {
    const slot = this.#kind === 'plain' ? this.#slot : 0
    return (this.#held().reads[slot] ??= Buffer.allocUnsafeSlow(this.#pool.readBytes))
  }

  /** The buffer for the frames of what was read. */
  framesBuffer(): Buffer {
    return (this.#held().frames[this.#slot] ??= Buffer.allocUnsafeSlow(this.#pool.framesBytes))
  }

  /**
   * Called once for each chunk that is passed on: the next read uses the other buffers, so that these stay unchanged while
   * they are written to the client. Not called for an empty read.
   */
  advance(bytes: number): void {
    this.#sentBytes += bytes
    this.#slot = this.#slot === 0 ? 1 : 0
  }

  /**
   * Returns the buffers to the pool. No chunk of this lease may be in flight: a stream yields an empty chunk at its end, and
   * when the next chunk is requested, all before it are written.
   */
  returnBuffers(): void {
    if (!this.#set) return
    this.#pool.put(this.#set)
    if (this.#large) largeSetsInUse--
    this.#large = false
    this.#set = undefined
  }

  /**
   * Ends the lease of a stream that was aborted. Its last chunk may still be in flight, so its buffers are left to the
   * garbage collector and not reused.
   */
  dropBuffers(): void {
    if (this.#large) largeSetsInUse--
    this.#large = false
    this.#set = undefined
  }

  get #pool(): BufferPool {
    return pools[this.#large ? 'large' : 'small'][this.#kind]
  }

  #held(): BufferSet {
    this.#set ??= this.#pool.take()
    return this.#set
  }

  #grow(): void {
    // The small set may still be in flight, so it is not reused.
    this.#set = pools.large[this.#kind].take()
    this.#large = true
    largeSetsInUse++
  }
}
