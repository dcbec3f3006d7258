/**
 * The position of one follower in one followed file.
 *
 * `step()` returns the next event at the position and never waits for growth: shared bytes at the live end, bytes read by this
 * cursor when it is behind, a truncation, or the end for now. `sleepUntil()` waits until the file has changed, a heartbeat is
 * due, or `wake()` is called.
 */
import { Fault } from '../../../platform/errors.ts'
import { FRAME_DATA_BYTES_MAX } from '../../../platform/stream-frame.ts'
import type { BufferLease } from '../../files/buffers.ts'
import {
  EDGE_BYTES,
  type FileFollower,
  type FollowedFile,
  type FollowedFiles,
  type SharedChunk,
} from './followed-file.ts'
import type { ReadableFile } from '../../files/alloc-files.ts'
import { spendTurn } from '../../files/read.ts'

export type FileStep =
  | { readonly kind: 'shared'; readonly chunk: SharedChunk }
  | { readonly kind: 'private'; readonly data: Buffer; readonly start: number }
  | { readonly kind: 'truncated' }
  | { readonly kind: 'end' }

const END: FileStep = { kind: 'end' }
const TRUNCATED: FileStep = { kind: 'truncated' }

export class FileCursor implements FileFollower {
  readonly file: FollowedFile
  position: number
  progressAtMs = performance.now()
  wakeAtMs = Number.POSITIVE_INFINITY
  /** Set if another object sleeps for this cursor. */
  onWake: (() => void) | undefined
  readonly #files: FollowedFiles
  readonly #lease: BufferLease
  #generation: number
  #edge: Buffer
  #news = false
  #resolve: (() => void) | undefined
  #released = false
  /** Bytes read since the last time at the end. */
  #sinceEnd = 0

  /** Owns the descriptor of `content` from now on. `root` is the directory of `content.path`. */
  constructor(options: {
    files: FollowedFiles
    content: ReadableFile
    root: string
    position: number
    lease: BufferLease
  }) {
    const { content, root } = options
    this.#files = options.files
    this.#lease = options.lease
    this.position = options.position
    const hostPath = `${root}/${content.path}`
    this.file = options.files.acquire({ fd: content.fd, stat: content.stat, hostPath, follower: this })
    this.#generation = this.file.generation
    this.#edge = this.file.edgeBefore(this.position)
  }

  /**
   * The next step. `labelBytes` is the length of a frame without its data. Synchronous at the live end, where hundreds of
   * followers may be.
   */
  step(labelBytes: number): FileStep | Promise<FileStep> {
    if (this.#released) throw new Fault('the file was deleted and its follower made no progress')
    if (this.file.fault !== undefined) throw this.file.fault
    this.progressAtMs = performance.now()
    if (this.#generation !== this.file.generation) return this.#restart()
    if (this.position >= this.file.size) this.#checkAgain()
    const shared = this.file.sharedAt(this.position, this.#edge)
    if (this.#generation !== this.file.generation) return this.#restart()
    if (shared) {
      this.#sinceEnd += shared.end - this.position
      this.position = shared.end
      this.#edge = shared.edge
      const step: FileStep = { kind: 'shared', chunk: shared }
      return spendTurn(shared.data.length)?.then(() => step) ?? step
    }
    return this.position < this.file.size ? this.#readPrivate(labelBytes) : END
  }

  /** Reads the file from before the last bytes read, to verify that these are unchanged. */
  async #readPrivate(labelBytes: number): Promise<FileStep> {
    const start = this.position
    const edge = this.#edge
    const length = Math.min(this.#lease.readBytes(labelBytes) - edge.length, this.file.size - start)
    const buffer = this.#lease.readBuffer()
    const got = (await this.file.file.read(buffer, 0, edge.length + length, start - edge.length)) - edge.length
    if (this.#generation !== this.file.generation) return this.#restart()
    if (got < 0 || buffer.compare(edge, 0, edge.length, 0, edge.length) !== 0) {
      this.file.rewritten()
      return this.#restart()
    }
    // The file shrank since the last check: these bytes may belong to a new generation, and the truncation comes first.
    if (got < length && this.#checkFindsRewrite()) return this.#restart()
    if (got === 0) return END
    const end = edge.length + got
    this.position = start + got
    this.#sinceEnd += got
    this.#edge = Buffer.from(buffer.subarray(Math.max(0, end - EDGE_BYTES), end))
    this.file.remember(this.#edge, this.position)
    this.#lease.advance(got)
    const turn = spendTurn(got)
    if (turn) await turn
    return { kind: 'private', data: buffer.subarray(edge.length, end), start }
  }

  /** After a long read the file has probably grown, so it is checked without waiting for an event. */
  #checkAgain(): void {
    if (this.#sinceEnd >= FRAME_DATA_BYTES_MAX) this.file.check()
    this.#sinceEnd = 0
  }

  /** Checks the file; true if that started a new generation. */
  #checkFindsRewrite(): boolean {
    this.file.check()
    return this.#generation !== this.file.generation
  }

  /** True if everything written so far has been read. */
  drained(): boolean {
    return !this.#checkFindsRewrite() && this.atEnd
  }

  /** Bytes up to the end as of the last check. */
  get lagBytes(): number {
    return Math.max(0, this.file.size - this.position)
  }

  get atEnd(): boolean {
    return this.position >= this.file.size
  }

  /** The file does not serve it any more. */
  get revoked(): boolean {
    return this.#released
  }

  #restart(): FileStep {
    this.#generation = this.file.generation
    this.position = 0
    this.#edge = Buffer.alloc(0)
    return TRUNCATED
  }

  /** Resolves at the next change (at once if there was one since the last sleep), or at `wakeAtMs` (monotonic). */
  sleepUntil(wakeAtMs: number): Promise<void> {
    if (this.#news || this.#released || wakeAtMs <= performance.now()) {
      this.#news = false
      return Promise.resolve()
    }
    this.wakeAtMs = wakeAtMs
    return new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  wake(): void {
    const resolve = this.#resolve
    this.#resolve = undefined
    if (resolve) resolve()
    else this.#news = true
    this.onWake?.()
  }

  revoke(): void {
    this.release()
    this.wake()
  }

  release(): void {
    if (this.#released) return
    this.#released = true
    this.#files.release(this.file, this)
  }
}
