/**
 * One open file and everybody who follows it.
 *
 * However many followers a file has, it is opened once, watched once and its fresh end is read once: that chunk (at
 * most one frame) is shared, encoded once, and each follower that stands at its start sends the same bytes. A follower
 * that is behind reads the file itself at its own pace (`file-cursor.ts`), so a slow one neither slows the others nor
 * makes anything grow.
 *
 * Truncation is told by a shrunken size, and, because a file may be truncated and written past its old length between
 * two looks, by content: the last `EDGE_BYTES` that were read must still stand before the new data. Each truncation
 * begins a new `generation`, and positions of an older generation mean nothing any more.
 *
 * Deletion is told by the name: it is gone or belongs to another inode. The open descriptor still reads what was
 * written, but not for ever: a follower of a deleted file that takes nothing for `DELETED_STALL_MS` is revoked, so that
 * a reader who never reads cannot keep a deleted file's space on the disk.
 */
import { closeSync, fstatSync, lstatSync, readSync, type BigIntStats } from 'node:fs'
import { FRAME_DATA_BYTES_MAX, type FrameLabel, framesBytesMax } from '../../../platform/frame.ts'
import { OpenFile } from '../../files/read.ts'
import type { DirectoryWatches, WatchedDirectory, Watcher } from './watched-directory.ts'

/** Bytes compared to notice a rewrite. Longer than a log line, so that repeated lines rarely look alike. */
export const EDGE_BYTES = 256
const DELETED_STALL_MS = 60_000
/** Files that were changed so recently may change again without a new time of change: kernels count it in ticks. */
const RECENT_MS = 50
const EMPTY = Buffer.alloc(0)

/**
 * Least time between two fan-outs of a file for each of its followers: each fan-out costs a system call for every one of
 * them, so with many it waits until the lines are worth it. A lone follower hears of a line at once.
 */
const FANOUT_MS_PER_FOLLOWER = 0.4
const FANOUT_MS_MAX = 200

/** Fresh bytes at the end of a file, the same for all who stand at `start`. */
export interface SharedChunk {
  readonly start: number
  readonly end: number
  readonly generation: number
  readonly data: Buffer
  /** The last bytes up to `end`, to compare before reading on. */
  readonly edge: Buffer
  /** The data as one frame, made when the first follower asks. */
  frame(label: FrameLabel): Buffer
}

/** What a cursor tells its file about itself. */
export interface FileFollower {
  /** Wakes the follower if it waits. */
  wake(): void
  /** When it last took something, in monotonic ms. */
  readonly progressAtMs: number
  /** When it wants to be woken even if nothing happens, in monotonic ms. */
  readonly wakeAtMs: number
  /** The file will not serve it any longer. */
  revoke(): void
}

export class FollowedFile implements Watcher {
  readonly name: string
  readonly file: OpenFile
  readonly directory: WatchedDirectory
  readonly hostPath: string
  generation = 0
  /** Size at the last look. */
  size: number
  /** Its name is gone or names another file. */
  deleted = false
  readonly identity: { dev: bigint; ino: bigint }
  /** When it was created; 0 where the file system does not tell. */
  readonly bornNs: bigint
  /** Why it cannot be looked at any longer, if so: a disk or a mount that failed. */
  fault: unknown
  readonly #deletedStallMs: number
  readonly #followers = new Set<FileFollower>()
  #modifiedMs: number
  /** Whether the time of change was recent when it was looked at. */
  #modifiedRecently = true
  #latest: SharedChunk | undefined
  #latestAtPoll: SharedChunk | undefined
  /** The last bytes before `#edgeAt`, the furthest place that anybody has read to, as they were read. */
  #edge: Buffer = EMPTY
  #edgeAt = 0
  #lookAtMs = Number.NEGATIVE_INFINITY
  #lookTimer: NodeJS.Timeout | undefined

  constructor(options: {
    fd: number
    stat: BigIntStats
    hostPath: string
    directory: WatchedDirectory
    deletedStallMs: number
  }) {
    this.file = new OpenFile(options.fd)
    this.directory = options.directory
    this.hostPath = options.hostPath
    this.name = options.hostPath.slice(options.hostPath.lastIndexOf('/') + 1)
    this.identity = { dev: options.stat.dev, ino: options.stat.ino }
    this.bornNs = options.stat.birthtimeNs
    this.size = Number(options.stat.size)
    this.#deletedStallMs = options.deletedStallMs
    this.#modifiedMs = Number(options.stat.mtimeNs) / 1e6
    this.directory.add(this)
  }

  follow(follower: FileFollower): void {
    this.#followers.add(follower)
  }

  /** True when nobody is left. */
  unfollow(follower: FileFollower): boolean {
    this.#followers.delete(follower)
    return this.#followers.size === 0
  }

  is(stat: BigIntStats): boolean {
    return stat.ino === this.identity.ino && stat.dev === this.identity.dev
  }

  close(): void {
    clearTimeout(this.#lookTimer)
    this.directory.remove(this)
    this.file.close()
  }

  get fanoutIntervalMs(): number {
    return Math.min((this.#followers.size - 1) * FANOUT_MS_PER_FOLLOWER, FANOUT_MS_MAX)
  }

  contentChanged(): void {
    if (this.#lookTimer) return
    const waitMs = this.#lookAtMs + this.fanoutIntervalMs - performance.now()
    if (waitMs <= 0) {
      this.look()
      return
    }
    this.#lookTimer = setTimeout(() => {
      this.#lookTimer = undefined
      this.look()
    }, waitMs)
  }

  namesChanged(): void {
    this.#checkName()
    this.look()
    // Even when this file did not change, its followers wait for the next one.
    this.#wakeAll()
  }

  poll(): void {
    this.#checkName()
    this.look()
    // Whoever was going to share it has done so; a quiet file holds no bytes.
    if (this.#latest === this.#latestAtPoll) this.#latest = undefined
    this.#latestAtPoll = this.#latest
    const nowMs = performance.now()
    for (const follower of this.#followers) {
      if (follower.wakeAtMs <= nowMs) follower.wake()
      if (this.deleted && follower.progressAtMs < nowMs - this.#deletedStallMs) follower.revoke()
    }
  }

  /**
   * Looks at size and content, and wakes everybody if there is news. Returns the bytes by which the size changed. Never
   * throws, since timers call it; followers are told of a failure in their next step. `closely` compares the content even
   * where growth is explanation enough, which otherwise is left to the next reader.
   */
  look(closely = false): number {
    this.#lookAtMs = performance.now()
    try {
      return this.#lookInside(closely)
    } catch (error) {
      this.fault = error
      this.#wakeAll()
      return 0
    }
  }

  #lookInside(closely: boolean): number {
    const stat = fstatSync(this.file.fd)
    const modified = stat.mtimeMs !== this.#modifiedMs || this.#modifiedRecently
    this.#modifiedMs = stat.mtimeMs
    this.#modifiedRecently = Math.abs(Date.now() - stat.mtimeMs) < RECENT_MS
    if (stat.size < this.size) this.rewritten()
    else if ((closely || (stat.size === this.size && modified)) && !this.#edgeMatches()) this.rewritten()
    const grown = Math.abs(stat.size - this.size)
    this.size = stat.size
    if (grown > 0) this.#wakeAll()
    return grown
  }

  /** Begins a new generation: what was read before is no longer what the file holds. */
  rewritten(): void {
    this.generation++
    this.#latest = undefined
    this.#edge = EMPTY
    this.#edgeAt = 0
    this.size = fstatSync(this.file.fd).size
    this.#wakeAll()
  }

  /**
   * The shared chunk that starts at `position`, read now if the caller is the first to get there; `edge` is what it
   * read last. Undefined when the caller is so far behind that it had better read by itself.
   */
  sharedAt(position: number, edge: Buffer): SharedChunk | undefined {
    if (this.#latest?.start === position) return this.#latest
    const length = this.size - position
    if (length <= 0 || length > FRAME_DATA_BYTES_MAX) return undefined
    if (this.#latest && position < this.#latest.end) return undefined
    return this.#readShared(position, length, edge)
  }

  #readShared(position: number, length: number, edge: Buffer): SharedChunk | undefined {
    const buffer = Buffer.allocUnsafeSlow(edge.length + length)
    const got = readSync(this.file.fd, buffer, 0, buffer.length, position - edge.length) - edge.length
    if (got < 0 || buffer.compare(edge, 0, edge.length, 0, edge.length) !== 0) {
      this.rewritten()
      return undefined
    }
    const { generation } = this
    // The file has shrunk since it was looked at: what was read may be of a new beginning, to be told first.
    if (got < length) this.look()
    if (got === 0 || generation !== this.generation) return undefined
    const data = buffer.subarray(edge.length, edge.length + got)
    const last = Buffer.from(buffer.subarray(Math.max(0, edge.length + got - EDGE_BYTES), edge.length + got))
    this.remember(last, position + got)
    this.#latest = sharedChunk({ start: position, data, generation, edge: last })
    return this.#latest
  }

  /** Keeps the last bytes before `at`, so that a rewrite is noticed even while the size stays. */
  remember(edge: Buffer, at: number): void {
    if (at < this.#edgeAt) return
    this.#edge = edge
    this.#edgeAt = at
  }

  /** The bytes in front of a position where a follower starts, to notice a rewrite even before its first read. */
  edgeBefore(position: number): Buffer {
    const from = Math.max(0, position - EDGE_BYTES)
    if (position > this.size || position === from) return EMPTY
    const edge = Buffer.allocUnsafeSlow(position - from)
    const whole = readSync(this.file.fd, edge, 0, edge.length, from) === edge.length
    if (!whole) return EMPTY
    this.remember(edge, position)
    return edge
  }

  #edgeMatches(): boolean {
    if (this.#edge.length === 0) return true
    const now = Buffer.allocUnsafe(this.#edge.length)
    const got = readSync(this.file.fd, now, 0, now.length, this.#edgeAt - now.length)
    return got === now.length && now.equals(this.#edge)
  }

  #checkName(): void {
    if (this.deleted) return
    try {
      this.deleted = !this.is(lstatSync(this.hostPath, { bigint: true }))
    } catch {
      this.deleted = true
    }
    if (this.deleted) this.#wakeAll()
  }

  #wakeAll(): void {
    for (const follower of this.#followers) follower.wake()
  }
}

function sharedChunk(made: Pick<SharedChunk, 'start' | 'data' | 'generation' | 'edge'>): SharedChunk {
  const { data, start } = made
  let cached: { file: string; bytes: Buffer } | undefined
  return {
    ...made,
    end: start + data.length,
    frame(label) {
      // Followers that spelled the path in another way get a frame of their own; nearly always there is one spelling.
      if (cached?.file === label.file) return cached.bytes
      const buffer = Buffer.allocUnsafeSlow(framesBytesMax(data.length, label))
      const bytes = buffer.subarray(0, label.encodeFrames(data, 0, data.length, start, buffer, 0))
      cached = { file: label.file, bytes }
      return bytes
    },
  }
}

/** All followed files of a process, one per inode and name. */
export class FollowedFiles {
  readonly #files = new Map<string, FollowedFile>()
  readonly #watches: DirectoryWatches
  readonly #deletedStallMs: number

  constructor(watches: DirectoryWatches, deletedStallMs = DELETED_STALL_MS) {
    this.#watches = watches
    this.#deletedStallMs = deletedStallMs
  }

  /** Takes over `fd`: it is kept, or closed because the file is followed already. */
  acquire(options: { fd: number; stat: BigIntStats; hostPath: string; follower: FileFollower }): FollowedFile {
    const { fd, stat, hostPath, follower } = options
    const key = keyOf(stat, hostPath)
    let found = this.#files.get(key)
    if (found && !found.deleted) {
      closeSync(fd)
      // Whoever comes now must not be told of a truncation that was before its time.
      found.look(true)
    } else {
      const directory = this.#watches.acquire(hostPath.slice(0, hostPath.lastIndexOf('/')))
      found = new FollowedFile({ fd, stat, hostPath, directory, deletedStallMs: this.#deletedStallMs })
      this.#files.set(key, found)
    }
    found.follow(follower)
    return found
  }

  release(file: FollowedFile, follower: FileFollower): void {
    if (!file.unfollow(follower)) return
    const key = keyOf(file.identity, file.hostPath)
    if (this.#files.get(key) === file) this.#files.delete(key)
    file.close()
    this.#watches.release(file.directory)
  }

  get size(): number {
    return this.#files.size
  }
}

function keyOf(identity: { dev: bigint; ino: bigint }, hostPath: string): string {
  return `${identity.dev}:${identity.ino}:${hostPath}`
}
