/** Reads logs once, each from its start position to its current end. */
import { yieldIfDue } from '../../platform/scheduler.ts'
import type { BufferLease } from '../files/buffers.ts'
import { type FileMark, markAt } from './locate/resume-cursor.ts'
import { eventStep, type LogStart } from './follow/log-cursor.ts'
import type { LogFiles, LogPosition } from './locate/log-files.ts'
import { fileSteps, type LabelledFile } from './single-file.ts'
import { OpenFile } from '../files/read.ts'
import type { FiniteSource, SourceStep } from './follow/stream-source.ts'

export interface LogWithStart {
  readonly logs: LogFiles
  readonly start: LogStart
}

/** Maximum age of a directory listing while several logs are read. For one log it is always refreshed. */
const LISTED_MS = 100

/** Reads logs one after another; mostly there is one. */
export class TaskLogReader implements FiniteSource {
  readonly #logStarts: readonly LogWithStart[]
  readonly #lease: BufferLease
  #names: readonly string[] = []
  #listedAtMs = Number.NEGATIVE_INFINITY
  /** The position in each log; of logs not begun, the start position. */
  readonly #marks = new Map<LogFiles, FileMark>()
  /** Of files before the start position, which may have late bytes. */
  readonly #late: FileMark[] = []

  constructor(logStarts: readonly LogWithStart[], lease: BufferLease) {
    this.#logStarts = logStarts
    this.#lease = lease
    for (const { logs, start } of logStarts) this.#open(logs, start.position, start.after ?? 0)?.file.close()
  }

  marks(): FileMark[] {
    return [...this.#late, ...this.#marks.values()]
  }

  async *steps(labelBytes: () => number): AsyncGenerator<SourceStep> {
    for (const { logs, start } of this.#logStarts) {
      if (start.notice) yield this.#noticeStep(logs, start.notice)
      for (const late of start.late ?? []) yield* this.#readFile(logs, late, labelBytes, undefined)
      let position: LogPosition | undefined = start.position
      for (let after = start.after ?? 0; position; after = 0)
        position = yield* this.#readFile(logs, position, labelBytes, after)
    }
  }

  release(): void {
    // Each file is open only while it is read.
  }

  #noticeStep(logs: LogFiles, notice: NonNullable<LogStart['notice']>): SourceStep {
    return { step: eventStep(notice), path: logs.path(notice.index), mark: this.#marks.get(logs) ?? emptyMark(logs) }
  }

  #open(logs: LogFiles, position: LogPosition, after: number | undefined): LabelledFile | undefined {
    const content = logs.open(position.index)
    if (!content) return undefined
    const mark = markAt(logs.hash, position.index, content, position.offset)
    if (after === undefined) this.#late.push(mark)
    else {
      mark.after = after
      this.#marks.set(logs, mark)
    }
    return { file: new OpenFile(content.fd), path: logs.path(position.index), mark }
  }

  /**
   * Reads one file from a position to its end. Returns the start of the next file, if there is one: then this file was read to
   * its end once more after the next was found, because its writer may have appended until then. `after` is the number of
   * context lines to be output there; undefined to read only the late bytes of a rotated file.
   */
  async *#readFile(
    logs: LogFiles,
    position: LogPosition,
    labelBytes: () => number,
    after: number | undefined,
  ): AsyncGenerator<SourceStep, LogPosition | undefined> {
    const turn = yieldIfDue()
    if (turn) await turn
    const openFile = this.#open(logs, position, after)
    // Undefined if a rotation removed the file since the listing.
    if (!openFile) return after === undefined ? undefined : this.#positionAfter(logs, position)
    try {
      let offset = position.offset
      let next: LogPosition | undefined
      for (;;) {
        offset = yield* fileSteps(openFile, offset, this.#lease, labelBytes())
        if (next) return next
        next = after === undefined ? undefined : this.#positionAfter(logs, position)
        if (!next) return undefined
      }
    } finally {
      openFile.file.close()
    }
  }

  #positionAfter(logs: LogFiles, position: LogPosition): LogPosition | undefined {
    const nowMs = performance.now()
    if (this.#logStarts.length === 1 || nowMs - this.#listedAtMs > LISTED_MS) {
      this.#names = logs.names()
      this.#listedAtMs = nowMs
    }
    const index = logs.indexes(this.#names).find((other) => other > position.index)
    return index === undefined ? undefined : { index, offset: 0 }
  }
}

/** The mark of a log without a file that can be opened. */
function emptyMark(logs: LogFiles): FileMark {
  return { log: logs.hash, index: 0, identity: 0, offset: 0, edge: 0, edgeLength: 0, after: 0 }
}
