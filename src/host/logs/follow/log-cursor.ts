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
import { Fault } from '../../../platform/errors.ts'
import type { Allocation } from '../../allocations/allocation.ts'
import type { BufferLease } from '../../files/buffers.ts'
import { type FileMark, markAt } from '../locate/resume-cursor.ts'
import { FileCursor } from './file-cursor.ts'
import type { FollowedFiles } from './followed-file.ts'
import type { LogFiles, LogPosition } from '../locate/log-files.ts'
import type { EventStep, FollowSource, SourceStep } from './stream-source.ts'

const LINGER_MS = 1000
/** Earlier files that are still listened to; each costs a descriptor. */
const LINGER_FILES_MAX = 4

/** A file of the log that the follower stands in. */
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

/** Where to begin: a place, or what is left of the place where another stream ended. */
export interface LogStart {
  readonly place: LogPosition
  /** Earlier files that were read up to here and may have got late bytes since. */
  readonly late?: readonly LogPosition[]
  /** What is to be said first: the place is not where it was asked for. */
  readonly said?: { readonly event: 'deleted' | 'truncated'; readonly index: number; readonly offset: number }
  /** Lines of context that are owed behind a match before the place. */
  readonly after?: number
}

/** What is said first, as a step. */
export function eventStep({ event, offset }: NonNullable<LogStart['said']>): EventStep {
  return event === 'deleted' ? { kind: event, offset } : { kind: event }
}

export class LogCursor implements FollowSource {
  readonly kind = 'log'
  readonly #options: LogCursorOptions
  #current: LogFileCursor
  /** Only files with a higher index come next; lower ones are older. */
  #floor: number
  /** The files before this one, the oldest first, in case their writers are late. */
  readonly #old: RotatedFileCursor[] = []
  /** Indexes to go on with, nearest first, once the current file is drained after they became known. */
  #next: readonly number[] = []
  #listedGeneration = -1
  #listedDeleted = false
  #saidDeleted = false
  #said: LogStart['said']
  /** Set by whoever waits for several logs at once. */
  onWake: (() => void) | undefined

  /** Undefined when the file to begin in is gone by now. */
  static open(options: LogCursorOptions, start: LogStart): LogCursor | undefined {
    const first = openAt(options, start.place)
    if (!first) return undefined
    first.mark.after = start.after ?? 0
    return new LogCursor(options, first, start)
  }

  private constructor(options: LogCursorOptions, first: LogFileCursor, start: LogStart) {
    this.#options = options
    this.#current = first
    this.#listen(first)
    this.#floor = first.index
    this.#said = start.said
    for (const place of start.late ?? []) {
      const late = openAt(options, place)
      if (late) this.#keepOld(late)
    }
  }

  marks(): FileMark[] {
    return [...this.#old.map(({ mark }) => mark), this.#current.mark]
  }

  get lagBytes(): number {
    return this.#current.cursor.lagBytes
  }

  /** Names in the log directory, listed once for all who ask until its watch tells of a change. */
  names(): readonly string[] {
    return this.#current.cursor.file.directory.names(() => this.#options.logs.names())
  }

  /** The next thing in the log; `end` when there is nothing for now. */
  async step(labelBytes: number): Promise<SourceStep> {
    const said = this.#sayFirst()
    if (said) return said
    const late = this.#old.length > 0 ? await this.#lateStep(labelBytes) : undefined
    if (late) return late
    for (;;) {
      const { cursor, index, path, mark } = this.#current
      const taken = cursor.step(labelBytes)
      const step = taken instanceof Promise ? await taken : taken
      if (step.kind !== 'end') return { step, path, mark }
      if (this.#next.length === 0 && this.#findNext()) continue
      if (this.#nearest > index && this.#moveOn()) continue
      if (cursor.file.deleted && !this.#saidDeleted) {
        this.#saidDeleted = true
        return { step: { kind: 'deleted', offset: cursor.position }, path, mark }
      }
      if (this.#moveOn()) continue
      if (this.#abandoned) throw new Fault('the log directory is gone')
      return { step, path, mark }
    }
  }

  #sayFirst(): SourceStep | undefined {
    const said = this.#said
    if (!said) return undefined
    this.#said = undefined
    return { step: eventStep(said), path: this.#options.logs.path(said.index), mark: this.#current.mark }
  }

  drained(): boolean {
    // What is cached may be older than the end that was told.
    const next = this.#newer(this.#options.logs.indexes())
    if (![...this.#old, this.#current].every(({ cursor }) => cursor.revoked || cursor.drained())) return false
    this.#next = next
    // A name that is no readable file is passed over here too: waiting for it would have no end.
    return !this.#moveOn()
  }

  /** As `FileCursor.sleepUntil`. */
  sleepUntil(wakeAtMs: number): Promise<void> {
    return this.#current.cursor.sleepUntil(wakeAtMs)
  }

  wake(): void {
    this.#current.cursor.wake()
  }

  /** True when the log's directory is gone: nothing can ever follow. */
  get #abandoned(): boolean {
    return this.#current.cursor.file.deleted && !this.#options.logs.directoryExists()
  }

  release(): void {
    this.#current.cursor.release()
    for (const old of this.#old.splice(0)) old.cursor.release()
  }

  /** Looks for a file to go on with, if names may have changed since the last look; true when there is one. */
  #findNext(): boolean {
    const { logs } = this.#options
    const { directory, deleted } = this.#current.cursor.file
    if (directory.generation === this.#listedGeneration && deleted === this.#listedDeleted) return false
    this.#listedGeneration = directory.generation
    this.#listedDeleted = deleted
    this.#next = this.#newer(logs.indexes(this.names()))
    // A directory is not read in one instant: one file may be missed and a later one seen. Only two looks make a gap.
    if (this.#next.length > 0 && this.#nearest !== this.#current.index + 1) this.#next = this.#newer(logs.indexes())
    if (this.#next.length === 0) return false
    this.#current.cursor.file.look()
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

  /** The index to go on with; -1 when there is none. */
  get #nearest(): number {
    return this.#next[0] ?? -1
  }

  /** Moves to the nearest of the next files that can be opened; a name that is no readable file is passed over. */
  #moveOn(): boolean {
    if (this.#next.length === 0) return false
    const candidates = this.#next
    this.#next = []
    this.#listedGeneration = -1
    for (const index of candidates) {
      const opened = openAt(this.#options, { index, offset: 0 })
      if (!opened) continue
      this.#keepOld(this.#current)
      this.#current = opened
      this.#listen(opened)
      this.#floor = index
      this.#saidDeleted = false
      return true
    }
    return false
  }

  #listen(standing: LogFileCursor): void {
    standing.cursor.onWake = () => this.onWake?.()
  }

  #keepOld(standing: LogFileCursor): void {
    this.#old.push({ ...standing, untilMs: performance.now() + LINGER_MS })
    if (this.#old.length > LINGER_FILES_MAX) this.#old.shift()?.cursor.release()
    standing.cursor.onWake = () => this.wake()
  }

  /** What the writers of earlier files have added since; files whose time is over are let go. */
  async #lateStep(labelBytes: number): Promise<SourceStep | undefined> {
    for (const old of this.#old.slice()) {
      // Revoked with nothing left to read: no reason to break what goes on in the current file.
      const step = old.cursor.revoked && old.cursor.atEnd ? undefined : await old.cursor.step(labelBytes)
      if (step && step.kind !== 'end') return { step, path: old.path, mark: old.mark }
      if (step && old.untilMs >= performance.now()) continue
      old.cursor.release()
      this.#old.splice(this.#old.indexOf(old), 1)
    }
    return undefined
  }
}

function openAt({ files, logs, allocation, lease }: LogCursorOptions, place: LogPosition): LogFileCursor | undefined {
  const content = logs.open(place.index)
  if (!content) return undefined
  const mark = markAt(logs.hash, place.index, content, place.offset)
  const cursor = new FileCursor({ files, content, root: allocation.directory, position: place.offset, lease })
  return { cursor, index: place.index, path: logs.path(place.index), mark }
}
