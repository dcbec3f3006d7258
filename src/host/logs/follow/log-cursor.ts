/**
 * The position of a follower in a rotated log: a cursor in one file, and the rule for the next file.
 *
 * Rotation: when a higher index exists, the current file is read to its end once more, and then the follower moves on, so bytes
 * written before the rotation are not lost. A rotated file is followed for another `LINGER_MS`, for a writer that still
 * appends to it: those bytes arrive late, but they arrive.
 *
 * Deletion: when the current file is deleted, the follower reads the rest through its descriptor and continues with a higher
 * index if there is one. Otherwise it reports the deletion once and waits for one. Lower indexes are older and not replayed,
 * unless a new log was started: all files are gone, or a file at or below the index is younger than the deleted one. That is
 * reported too, because its offsets restart.
 */
import { Fault } from '../../../platform/errors.ts'
import type { Allocation } from '../../allocations/allocation.ts'
import type { BufferLease } from '../../files/buffers.ts'
import { type FileMark, markAt } from '../locate/resume-cursor.ts'
import { FileCursor } from './file-cursor.ts'
import type { FollowedFiles } from './followed-file.ts'
import type { LogFiles, LogPosition } from '../locate/log-files.ts'
import type { EventStep, FollowSource, SourceStep } from './stream-source.ts'

const LINGER_MS = 1000
/** Rotated files that are still followed; each costs a descriptor. */
const LINGER_FILES_MAX = 4

/** The cursor in one file of the log. */
interface LogFileCursor {
  readonly cursor: FileCursor
  readonly index: number
  readonly path: string
  readonly mark: FileMark
}

interface RotatedFileCursor extends LogFileCursor {
  readonly untilMs: number
}

interface LogCursorOptions {
  readonly files: FollowedFiles
  readonly logs: LogFiles
  readonly allocation: Allocation
  readonly lease: BufferLease
}

/** Where a stream starts in a log; `notice` if that is not the position of its cursor. */
export interface LogStart {
  readonly position: LogPosition
  /** Earlier files that were read up to these positions and may have late bytes. */
  readonly late?: readonly LogPosition[]
  /** An event to report first. */
  readonly notice?: { readonly event: 'deleted' | 'truncated'; readonly index: number; readonly offset: number }
  /** Number of context lines to be output after a match before the position. */
  readonly after?: number
}

/** A notice as a step. */
export function eventStep({ event, offset }: NonNullable<LogStart['notice']>): EventStep {
  return event === 'deleted' ? { kind: event, offset } : { kind: event }
}

export class LogCursor implements FollowSource {
  readonly kind = 'log'
  readonly #options: LogCursorOptions
  #current: LogFileCursor
  /** Files with an index up to this are older. */
  #floor: number
  /** Previous files, the oldest first, for late bytes. */
  readonly #rotated: RotatedFileCursor[] = []
  /** Indexes of the next files, nearest first. The current file is read to its end once more before the first is opened. */
  #next: readonly number[] = []
  #listedGeneration = -1
  #listedDeleted = false
  #deletionReported = false
  #notice: LogStart['notice']
  /** Set by `MergedLogs`, which sleeps for several logs. */
  onWake: (() => void) | undefined

  /** Undefined if the file of the start position does not exist any more. */
  static open(options: LogCursorOptions, start: LogStart): LogCursor | undefined {
    const first = openAt(options, start.position)
    if (!first) return undefined
    first.mark.after = start.after ?? 0
    return new LogCursor(options, first, start)
  }

  private constructor(options: LogCursorOptions, first: LogFileCursor, start: LogStart) {
    this.#options = options
    this.#current = first
    this.#forwardWakes(first)
    this.#floor = first.index
    this.#notice = start.notice
    for (const position of start.late ?? []) {
      const late = openAt(options, position)
      if (late) this.#keepRotated(late)
    }
  }

  marks(): FileMark[] {
    return [...this.#rotated.map(({ mark }) => mark), this.#current.mark]
  }

  get lagBytes(): number {
    return this.#current.cursor.lagBytes
  }

  /** Names in the log directory, cached for all followers until they change. */
  names(): readonly string[] {
    return this.#current.cursor.file.directory.names(() => this.#options.logs.names())
  }

  /** The next step in the log; `end` if there is none for now. */
  async step(labelBytes: number): Promise<SourceStep> {
    const notice = this.#takeNotice()
    if (notice) return notice
    const late = this.#rotated.length > 0 ? await this.#stepRotated(labelBytes) : undefined
    if (late) return late
    for (;;) {
      const { cursor, index, path, mark } = this.#current
      const result = cursor.step(labelBytes)
      const step = result instanceof Promise ? await result : result
      if (step.kind !== 'end') return { step, path, mark }
      if (this.#next.length === 0 && this.#findNext()) continue
      if (this.#nearest > index && this.#openNext()) continue
      if (cursor.file.deleted && !this.#deletionReported) {
        this.#deletionReported = true
        return { step: { kind: 'deleted', offset: cursor.position }, path, mark }
      }
      if (this.#openNext()) continue
      if (this.#directoryGone) throw new Fault('the log directory was removed')
      return { step, path, mark }
    }
  }

  #takeNotice(): SourceStep | undefined {
    const notice = this.#notice
    if (!notice) return undefined
    this.#notice = undefined
    return { step: eventStep(notice), path: this.#options.logs.path(notice.index), mark: this.#current.mark }
  }

  drained(): boolean {
    // Not the cached names, which may be older than the end of the task.
    const next = this.#newer(this.#options.logs.indexes())
    if (![...this.#rotated, this.#current].every(({ cursor }) => cursor.revoked || cursor.drained())) return false
    this.#next = next
    // Names that are not readable files are skipped here too, or the stream would never end.
    return !this.#openNext()
  }

  /** As `FileCursor.sleepUntil`. */
  sleepUntil(wakeAtMs: number): Promise<void> {
    return this.#current.cursor.sleepUntil(wakeAtMs)
  }

  wake(): void {
    this.#current.cursor.wake()
  }

  /** True if the log directory was removed, so that no file can follow. */
  get #directoryGone(): boolean {
    return this.#current.cursor.file.deleted && !this.#options.logs.directoryExists()
  }

  release(): void {
    this.#current.cursor.release()
    for (const old of this.#rotated.splice(0)) old.cursor.release()
  }

  /** Searches the next files if names may have changed since the last search; true if there are any. */
  #findNext(): boolean {
    const { logs } = this.#options
    const { directory, deleted } = this.#current.cursor.file
    if (directory.generation === this.#listedGeneration && deleted === this.#listedDeleted) return false
    this.#listedGeneration = directory.generation
    this.#listedDeleted = deleted
    this.#next = this.#newer(logs.indexes(this.names()))
    // A listing is not atomic: it may miss a file and contain a later one. Only a second listing confirms a gap.
    if (this.#next.length > 0 && this.#nearest !== this.#current.index + 1) this.#next = this.#newer(logs.indexes())
    if (this.#next.length === 0) return false
    this.#current.cursor.file.check()
    return true
  }

  #newer(indexes: readonly number[]): number[] {
    if (indexes.length === 0) this.#floor = -1
    const { cursor, index: own } = this.#current
    const { deleted, bornNs } = cursor.file
    return indexes.filter(
      (index) => index > this.#floor || (deleted && (index === own || this.#options.logs.bornNs(index) > bornNs)),
    )
  }

  /** The next index; -1 if there is none. */
  get #nearest(): number {
    return this.#next[0] ?? -1
  }

  /** Moves to the nearest of the next files; names that are not readable files are skipped. */
  #openNext(): boolean {
    if (this.#next.length === 0) return false
    const candidates = this.#next
    this.#next = []
    this.#listedGeneration = -1
    for (const index of candidates) {
      const opened = openAt(this.#options, { index, offset: 0 })
      if (!opened) continue
      this.#keepRotated(this.#current)
      this.#current = opened
      this.#forwardWakes(opened)
      this.#floor = index
      this.#deletionReported = false
      return true
    }
    return false
  }

  #forwardWakes(cursorOfFile: LogFileCursor): void {
    cursorOfFile.cursor.onWake = () => this.onWake?.()
  }

  #keepRotated(cursorOfFile: LogFileCursor): void {
    this.#rotated.push({ ...cursorOfFile, untilMs: performance.now() + LINGER_MS })
    if (this.#rotated.length > LINGER_FILES_MAX) this.#rotated.shift()?.cursor.release()
    cursorOfFile.cursor.onWake = () => this.wake()
  }

  /** Late bytes of rotated files; files are released after their time. */
  async #stepRotated(labelBytes: number): Promise<SourceStep | undefined> {
    for (const old of this.#rotated.slice()) {
      // A revoked cursor at its end must not break the stream of the current file.
      const step = old.cursor.revoked && old.cursor.atEnd ? undefined : await old.cursor.step(labelBytes)
      if (step && step.kind !== 'end') return { step, path: old.path, mark: old.mark }
      if (step && old.untilMs >= performance.now()) continue
      old.cursor.release()
      this.#rotated.splice(this.#rotated.indexOf(old), 1)
    }
    return undefined
  }
}

function openAt(
  { files, logs, allocation, lease }: LogCursorOptions,
  position: LogPosition,
): LogFileCursor | undefined {
  const content = logs.open(position.index)
  if (!content) return undefined
  const mark = markAt(logs.hash, position.index, content, position.offset)
  const cursor = new FileCursor({ files, content, root: allocation.directory, position: position.offset, lease })
  return { cursor, index: position.index, path: logs.path(position.index), mark }
}
