/**
 * Logs that are read once: each from where it begins to the end that it has when that is reached.
 */
import { yieldIfDue } from '../../platform/scheduler.ts'
import type { BufferLease } from '../files/buffers.ts'
import { type Mark, markAt } from './locate/cursor-code.ts'
import { eventStep, type LogStart } from './follow/log-cursor.ts'
import type { LogFiles, LogPlace } from './locate/log-files.ts'
import { fileSteps, type Reading } from './one-file.ts'
import { OpenFile } from '../files/read.ts'
import type { Once, SourceStep } from './follow/stream-source.ts'

export interface LogBeginning {
  readonly logs: LogFiles
  readonly start: LogStart
}

/** Names in the log directory of several logs are listed again when they are older. Those of one log always are. */
const LISTED_MS = 100

/** Several logs one after the other; mostly there is one. */
export class LogsOnce implements Once {
  readonly #beginnings: readonly LogBeginning[]
  readonly #lease: BufferLease
  #names: readonly string[] = []
  #listedAtMs = Number.NEGATIVE_INFINITY
  /** Of each log where it stands; of those that come later, where they begin. */
  readonly #marks = new Map<LogFiles, Mark>()
  /** Of files before the place where a log begins, which may have got late bytes. */
  readonly #late: Mark[] = []

  constructor(beginnings: readonly LogBeginning[], lease: BufferLease) {
    this.#beginnings = beginnings
    this.#lease = lease
    for (const { logs, start } of beginnings) this.#open(logs, start.place, start.after ?? 0)?.file.close()
  }

  marks(): Mark[] {
    return [...this.#late, ...this.#marks.values()]
  }

  async *steps(labelBytes: () => number): AsyncGenerator<SourceStep> {
    for (const { logs, start } of this.#beginnings) {
      if (start.said) yield this.#say(logs, start.said)
      for (const late of start.late ?? []) yield* this.#readFile(logs, late, labelBytes, undefined)
      let place: LogPlace | undefined = start.place
      for (let after = start.after ?? 0; place; after = 0) place = yield* this.#readFile(logs, place, labelBytes, after)
    }
  }

  release(): void {
    // Each file is open only while it is read.
  }

  #say(logs: LogFiles, said: NonNullable<LogStart['said']>): SourceStep {
    return { step: eventStep(said), path: logs.path(said.index), mark: this.#marks.get(logs) ?? noMark(logs) }
  }

  #open(logs: LogFiles, place: LogPlace, after: number | undefined): Reading | undefined {
    const content = logs.open(place.index)
    if (!content) return undefined
    const mark = markAt(logs.hash, place.index, content, place.offset)
    if (after === undefined) this.#late.push(mark)
    else {
      mark.after = after
      this.#marks.set(logs, mark)
    }
    return { file: new OpenFile(content.fd), path: logs.path(place.index), mark }
  }

  /**
   * One file from the place to its end. Returns the place to go on at, if there is one: then the file was read to its
   * end once more after the next one was known to exist, as its writer may have added to it until then. `after` are
   * lines of context that are owed there; undefined where late bytes are looked for, with nothing to go on at.
   */
  async *#readFile(
    logs: LogFiles,
    place: LogPlace,
    labelBytes: () => number,
    after: number | undefined,
  ): AsyncGenerator<SourceStep, LogPlace | undefined> {
    const turn = yieldIfDue()
    if (turn) await turn
    const reading = this.#open(logs, place, after)
    if (!reading) return after === undefined ? undefined : this.#placeAfter(logs, place) // rotated away since it was listed
    try {
      let position = place.offset
      let next: LogPlace | undefined
      for (;;) {
        position = yield* fileSteps(reading, position, this.#lease, labelBytes())
        if (next) return next
        next = after === undefined ? undefined : this.#placeAfter(logs, place)
        if (!next) return undefined
      }
    } finally {
      reading.file.close()
    }
  }

  /** Which file is next is looked up again each time. */
  #placeAfter(logs: LogFiles, place: LogPlace): LogPlace | undefined {
    const nowMs = performance.now()
    if (this.#beginnings.length === 1 || nowMs - this.#listedAtMs > LISTED_MS) {
      this.#names = logs.names()
      this.#listedAtMs = nowMs
    }
    const index = logs.indexes(this.#names).find((other) => other > place.index)
    return index === undefined ? undefined : { index, offset: 0 }
  }
}

/** Says where a log stands of which no file could be opened: nowhere. */
function noMark(logs: LogFiles): Mark {
  return { log: logs.hash, index: 0, identity: 0, offset: 0, edge: 0, edgeLength: 0, after: 0 }
}
