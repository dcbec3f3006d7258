/**
 * One follower's place in one followed file.
 *
 * `step()` gives the next thing at the place and never waits for growth: shared bytes when the follower is at the live
 * end, bytes read by itself when it is behind, a truncation, or the end for now. `rest()` sleeps until the file has
 * news, a heartbeat is due, or somebody calls `wake()`.
 */
import { Fault } from '../../../platform/errors.ts'
import { FRAME_DATA_BYTES_MAX } from '../../../platform/frame.ts'
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
  /** Set when somebody else waits on this cursor's behalf. */
  onWake: (() => void) | undefined
  readonly #files: FollowedFiles
  readonly #lease: BufferLease
  #generation: number
  #edge: Buffer
  #news = false
  #resolve: (() => void) | undefined
  #released = false
  /** Bytes read since it last came to the end. */
  #sinceEnd = 0

  /** Takes over the content's descriptor. `root` is the directory that `content.path` lies beneath. */
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
   * The next thing here. `labelBytes` is what each frame of own bytes will need besides its data. At the live end, where
   * hundreds may stand, it is there at once and no promise is made.
   */
  step(labelBytes: number): FileStep | Promise<FileStep> {
    if (this.#released) throw new Fault('the file was deleted and its follower took nothing for too long')
    if (this.file.fault !== undefined) throw this.file.fault
    this.progressAtMs = performance.now()
    if (this.#generation !== this.file.generation) return this.#restart()
    if (this.position >= this.file.size) this.#lookAgain()
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

  /** Reads by itself; the bytes read last are read again in front, to see that they still stand there. */
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
    // The file has shrunk since it was looked at: what was read may be of a new beginning, to be told first.
    if (got < length && this.#lookFinds()) return this.#restart()
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

  /** Where a lot was read, the writer has gone on meanwhile: no need to wait until somebody says so. */
  #lookAgain(): void {
    if (this.#sinceEnd >= FRAME_DATA_BYTES_MAX) this.file.look()
    this.#sinceEnd = 0
  }

  /** Looks at the file once more; true when that began a new generation. */
  #lookFinds(): boolean {
    this.file.look()
    return this.#generation !== this.file.generation
  }

  /** True when everything that was written up to this moment has been read. */
  drained(): boolean {
    return !this.#lookFinds() && this.atEnd
  }

  /** Bytes up to the end as of the last look. */
  get lagBytes(): number {
    return Math.max(0, this.file.size - this.position)
  }

  get atEnd(): boolean {
    return this.position >= this.file.size
  }

  /** The file serves it no longer. */
  get revoked(): boolean {
    return this.#released
  }

  #restart(): FileStep {
    this.#generation = this.file.generation
    this.position = 0
    this.#edge = Buffer.alloc(0)
    return TRUNCATED
  }

  /** Sleeps until there is news (at once if there was some since the last sleep) or `wakeAtMs` (monotonic) has come. */
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
