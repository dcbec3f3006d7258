/**
 * One open file with all its followers.
 *
 * A file is opened once and watched once for all followers, and its new bytes are read once: that chunk (at most one frame) is
 * shared and encoded once, and each follower at its start sends the same bytes. A follower that is behind reads the file
 * itself (`file-cursor.ts`), so a slow one neither delays the others nor causes buffering.
 *
 * A truncation is detected by a smaller size and, because a file may be truncated and written past its old length between two
 * checks, by content: the last `EDGE_BYTES` that were read must still precede the new data. Each truncation starts a new
 * `generation`, which invalidates the positions of older ones.
 *
 * A deletion is detected by the name: it is missing or belongs to another inode. The open descriptor still reads what was
 * written. A follower of a deleted file without progress for `DELETED_STALL_MS` is revoked, so that a client that does not read
 * cannot keep the disk space of a deleted file.
 */
import { closeSync, fstatSync, lstatSync, readSync, type BigIntStats } from 'node:fs'
import { FRAME_DATA_BYTES_MAX, type FrameLabel, framesBytesMax } from '../../../platform/stream-frame.ts'
import { OpenFile } from '../../files/read.ts'
import type { DirectoryWatches, WatchedDirectory, WatchedFile } from './watched-directory.ts'

/** Bytes compared to detect a rewrite. Longer than most log lines, so that repeated lines rarely look alike. */
export const EDGE_BYTES = 256
const DELETED_STALL_MS = 60_000
/** A file may change again within this time without a new mtime, because kernels count it in ticks. */
const RECENT_MS = 50
const EMPTY = Buffer.alloc(0)

/**
 * Minimum interval between fan-outs, per follower. A fan-out costs a system call for each follower, so with many it is
 * delayed. A single follower gets each line at once.
 */
const FANOUT_MS_PER_FOLLOWER = 0.4
const FANOUT_MS_MAX = 200

/** New bytes at the end of a file, shared by all followers at `start`. */
export interface SharedChunk {
  readonly start: number
  readonly end: number
  readonly generation: number
  readonly data: Buffer
  /** The last bytes up to `end`, to be compared before the next read. */
  readonly edge: Buffer
  /** The data as one frame, encoded on first use. */
  frame(label: FrameLabel): Buffer
}

/** A follower as its file sees it. */
export interface FileFollower {
  /** Wakes the follower if it sleeps. */
  wake(): void
  /** Monotonic time of its last step. */
  readonly progressAtMs: number
  /** Monotonic time of its next wake-up without a change. */
  readonly wakeAtMs: number
  /** Called when the file does not serve it any more. */
  revoke(): void
}

export class FollowedFile implements WatchedFile {
  readonly name: string
  readonly file: OpenFile
  readonly directory: WatchedDirectory
  readonly hostPath: string
  generation = 0
  /** Size at the last check. */
  size: number
  /** Its name is missing or belongs to another file. */
  deleted = false
  readonly identity: { dev: bigint; ino: bigint }
  /** Creation time; 0 if the file system does not record it. */
  readonly bornNs: bigint
  /** The error of the last check: a disk or a mount that failed. */
  fault: unknown
  readonly #deletedStallMs: number
  readonly #followers = new Set<FileFollower>()
  #modifiedMs: number
  /** The mtime was recent at the last check. */
  #modifiedRecently = true
  #latest: SharedChunk | undefined
  #latestAtPoll: SharedChunk | undefined
  /** The last bytes before `#edgeAt`, the furthest read position, as they were read. */
  #edge: Buffer = EMPTY
  #edgeAt = 0
  #checkedAtMs = Number.NEGATIVE_INFINITY
  #checkTimer: NodeJS.Timeout | undefined

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

  /** True if there is no follower left. */
  unfollow(follower: FileFollower): boolean {
    this.#followers.delete(follower)
    return this.#followers.size === 0
  }

  is(stat: BigIntStats): boolean {
    return stat.ino === this.identity.ino && stat.dev === this.identity.dev
  }

  close(): void {
    clearTimeout(this.#checkTimer)
    this.directory.remove(this)
    this.file.close()
  }

  get fanoutIntervalMs(): number {
    return Math.min((this.#followers.size - 1) * FANOUT_MS_PER_FOLLOWER, FANOUT_MS_MAX)
  }

  contentChanged(): void {
    if (this.#checkTimer) return
    const waitMs = this.#checkedAtMs + this.fanoutIntervalMs - performance.now()
    if (waitMs <= 0) {
      this.check()
      return
    }
    this.#checkTimer = setTimeout(() => {
      this.#checkTimer = undefined
      this.check()
    }, waitMs)
  }

  namesChanged(): void {
    this.#checkName()
    this.check()
    // Followers of an unchanged file wait for the next file of the log.
    this.#wakeAll()
  }

  poll(): void {
    this.#checkName()
    this.check()
    // All followers have had time to send it; a quiet file holds no bytes.
    if (this.#latest === this.#latestAtPoll) this.#latest = undefined
    this.#latestAtPoll = this.#latest
    const nowMs = performance.now()
    for (const follower of this.#followers) {
      if (follower.wakeAtMs <= nowMs) follower.wake()
      if (this.deleted && follower.progressAtMs < nowMs - this.#deletedStallMs) follower.revoke()
    }
  }

  /**
   * Checks size and content, and wakes all followers after a change. Returns the change of the size in bytes. Never throws,
   * because timers call it; followers get an error in their next step. `closely` also compares the content of a file that has
   * grown, which otherwise the next reader does.
   */
  check(closely = false): number {
    this.#checkedAtMs = performance.now()
    try {
      return this.#checkInside(closely)
    } catch (error) {
      this.fault = error
      this.#wakeAll()
      return 0
    }
  }

  #checkInside(closely: boolean): number {
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

  /** Starts a new generation: the bytes read before are not in the file any more. */
  rewritten(): void {
    this.generation++
    this.#latest = undefined
    this.#edge = EMPTY
    this.#edgeAt = 0
    this.size = fstatSync(this.file.fd).size
    this.#wakeAll()
  }

  /**
   * The shared chunk that starts at `position`, read now for the first caller; `edge` has the caller's last bytes. Undefined if
   * the caller is too far behind and must read the file itself.
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
    // The file shrank since the last check: these bytes may belong to a new generation, and the truncation comes first.
    if (got < length) this.check()
    if (got === 0 || generation !== this.generation) return undefined
    const data = buffer.subarray(edge.length, edge.length + got)
    const last = Buffer.from(buffer.subarray(Math.max(0, edge.length + got - EDGE_BYTES), edge.length + got))
    this.remember(last, position + got)
    this.#latest = sharedChunk({ start: position, data, generation, edge: last })
    return this.#latest
  }

  /** Stores the last bytes before `at`, to detect a rewrite of the same size. */
  remember(edge: Buffer, at: number): void {
    if (at < this.#edgeAt) return
    this.#edge = edge
    this.#edgeAt = at
  }

  /** The bytes before a start position, to detect a rewrite before the first read. */
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
      // Requests with another spelling of the path get a separate frame; nearly always there is one spelling.
      if (cached?.file === label.file) return cached.bytes
      const buffer = Buffer.allocUnsafeSlow(framesBytesMax(data.length, label))
      const bytes = buffer.subarray(0, label.encodeFrames(data, 0, data.length, start, buffer, 0))
      cached = { file: label.file, bytes }
      return bytes
    },
  }
}

/** All followed files, one per inode and name. */
export class FollowedFiles {
  readonly #files = new Map<string, FollowedFile>()
  readonly #watches: DirectoryWatches
  readonly #deletedStallMs: number

  constructor(watches: DirectoryWatches, deletedStallMs = DELETED_STALL_MS) {
    this.#watches = watches
    this.#deletedStallMs = deletedStallMs
  }

  /** Owns `fd` from now on: keeps it, or closes it if the file is already followed. */
  acquire(options: { fd: number; stat: BigIntStats; hostPath: string; follower: FileFollower }): FollowedFile {
    const { fd, stat, hostPath, follower } = options
    const key = keyOf(stat, hostPath)
    let found = this.#files.get(key)
    if (found && !found.deleted) {
      closeSync(fd)
      // A new follower must not get the event of an earlier truncation.
      found.check(true)
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
