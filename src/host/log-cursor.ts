/**
 * A follower's place in a rotated log: a cursor in one file and the rule for the next.
 *
 * Rotation: only after a higher index exists is the current file read to its end once more, and only then does the
 * follower move on, so nothing that was written before the rotation is lost. A writer that adds to the old file even
 * later is still heard for `LINGER_MS`: those bytes come late, but they come.
 *
 * Deletion: when the current file is deleted the follower reads what the descriptor still holds and goes on with a
 * higher index when there is one. Otherwise it says so, once, and waits for one. Lower indexes are older and never
 * replayed, except where a new log was begun: all files are gone, or a file at or below the index is younger than the
 * deleted one. That is said too, because its offsets start again.
 */
import { Fault } from '../kit/errors.ts'
import type { Allocation } from './allocation.ts'
import type { BufferLease } from './buffers.ts'
import { FileCursor } from './file-cursor.ts'
import type { Followed, FollowStep } from './follow.ts'
import type { FollowedFiles } from './followed-file.ts'
import type { LogFiles, LogPlace } from './log-files.ts'

const LINGER_MS = 1000
/** Earlier files that are still listened to; each costs a descriptor. */
const LINGER_FILES_MAX = 4

interface OldFile {
  readonly cursor: FileCursor
  readonly index: number
  readonly untilMs: number
}

export class LogCursor implements Followed {
  readonly #files: FollowedFiles
  readonly #logs: LogFiles
  readonly #allocation: Allocation
  readonly #lease: BufferLease
  #current: FileCursor
  #index: number
  #path: string
  /** Only files with a higher index come next; lower ones are older. */
  #floor: number
  /** The files before this one, the oldest first, in case their writers are late. */
  readonly #old: OldFile[] = []
  /** Indexes to go on with, nearest first, once the current file is drained after they became known. */
  #next: readonly number[] = []
  #listedGeneration = -1
  #saidDeleted = false

  /** Undefined when the file of `place` is gone by now. */
  static open(options: {
    files: FollowedFiles
    logs: LogFiles
    allocation: Allocation
    lease: BufferLease
    place: LogPlace
  }): LogCursor | undefined {
    const first = openAt(options, options.place)
    return first && new LogCursor(options, first, options.place.index)
  }

  private constructor(
    options: { files: FollowedFiles; logs: LogFiles; allocation: Allocation; lease: BufferLease },
    first: FileCursor,
    index: number,
  ) {
    this.#files = options.files
    this.#logs = options.logs
    this.#allocation = options.allocation
    this.#lease = options.lease
    this.#current = first
    this.#index = index
    this.#path = options.logs.path(index)
    this.#floor = index
  }

  /** The next thing in the log; `end` when there is nothing for now. */
  async step(labelBytes: number): Promise<FollowStep> {
    const late = this.#old.length > 0 ? await this.#lateStep(labelBytes) : undefined
    if (late) return late
    for (;;) {
      const taken = this.#current.step(labelBytes)
      const step = taken instanceof Promise ? await taken : taken
      const path = this.#path
      if (step.kind !== 'end') return { step, path }
      if (this.#next.length === 0 && this.#findNext()) continue
      if (this.#nearest > this.#index && this.#moveOn()) continue
      if (this.#current.file.deleted && !this.#saidDeleted) {
        this.#saidDeleted = true
        return { step: { kind: 'deleted', offset: this.#current.position }, path }
      }
      if (this.#moveOn()) continue
      if (this.#abandoned) throw new Fault('the log directory is gone')
      return { step, path }
    }
  }

  /** As `FileCursor.rest`. */
  rest(beatAtMs: number): Promise<void> {
    return this.#current.rest(beatAtMs)
  }

  wake(): void {
    this.#current.wake()
  }

  /** True when the log's directory is gone: nothing can ever follow. */
  get #abandoned(): boolean {
    return this.#current.file.deleted && !this.#logs.directoryExists()
  }

  release(): void {
    this.#current.release()
    for (const old of this.#old.splice(0)) old.cursor.release()
  }

  /** Looks for a file to go on with, if names may have changed since the last look; true when there is one. */
  #findNext(): boolean {
    const { directory, deleted } = this.#current.file
    if (directory.generation === this.#listedGeneration && !deleted) return false
    this.#listedGeneration = directory.generation
    const names = deleted ? this.#logs.names() : directory.names(() => this.#logs.names())
    this.#next = this.#newer(this.#logs.indexes(names))
    // A directory is not read in one instant: one file may be missed and a later one seen. Only two looks make a gap.
    if (this.#next.length > 0 && this.#nearest !== this.#index + 1) this.#next = this.#newer(this.#logs.indexes())
    if (this.#next.length === 0) return false
    this.#current.file.look()
    return true
  }

  #newer(indexes: readonly number[]): number[] {
    if (indexes.length === 0) this.#floor = -1
    const { deleted, bornNs } = this.#current.file
    return indexes.filter(
      (index) => index > this.#floor || (deleted && (index === this.#index || this.#logs.bornNs(index) > bornNs)),
    )
  }

  /** The index to go on with; -1 when there is none. */
  get #nearest(): number {
    return this.#next[0] ?? -1
  }

  /** Moves to the nearest of the next files that can be opened; a name that is no readable file is passed over. */
  #moveOn(): boolean {
    if (this.#next.length === 0) return false
    const options = { files: this.#files, logs: this.#logs, allocation: this.#allocation, lease: this.#lease }
    const candidates = this.#next
    this.#next = []
    this.#listedGeneration = -1
    for (const index of candidates) {
      const opened = openAt(options, { index, offset: 0 })
      if (!opened) continue
      this.#old.push({ cursor: this.#current, index: this.#index, untilMs: performance.now() + LINGER_MS })
      if (this.#old.length > LINGER_FILES_MAX) this.#old.shift()?.cursor.release()
      this.#current.onWake = () => this.wake()
      this.#current = opened
      this.#index = index
      this.#path = this.#logs.path(index)
      this.#floor = index
      this.#saidDeleted = false
      return true
    }
    return false
  }

  /** What the writers of earlier files have added since; files whose time is over are let go. */
  async #lateStep(labelBytes: number): Promise<FollowStep | undefined> {
    for (const old of this.#old.slice()) {
      // Revoked with nothing left to read: no reason to break what goes on in the current file.
      const step = old.cursor.revoked && old.cursor.atEnd ? undefined : await old.cursor.step(labelBytes)
      if (step && step.kind !== 'end') return { step, path: this.#logs.path(old.index) }
      if (step && old.untilMs >= performance.now()) continue
      old.cursor.release()
      this.#old.splice(this.#old.indexOf(old), 1)
    }
    return undefined
  }
}

function openAt(
  options: { files: FollowedFiles; logs: LogFiles; allocation: Allocation; lease: BufferLease },
  place: LogPlace,
): FileCursor | undefined {
  const content = options.logs.open(place.index)
  if (!content) return undefined
  return new FileCursor({
    files: options.files,
    content,
    root: options.allocation.directory,
    position: place.offset,
    lease: options.lease,
  })
}
