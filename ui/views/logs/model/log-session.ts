/**
 * One tail: its stream, and the lines that were received.
 *
 * Reading is slowed down in two ways. A slice of work ends after `SLICE_MS`, so that the page stays responsive while a long log arrives. And
 * while the user reads an earlier part, reading stops as soon as half of the kept lines are behind that part: lines that the user looks at
 * are never removed. The server waits then, and nothing is lost.
 */
import type { Frame } from '../../../api/frame-reader.ts'
import { LineSplitter, type RawLine } from '../stream/line-splitter.ts'
import type { LogSelection, LogTarget } from '../stream/log-target.ts'
import { ResumingStream, type StreamEnvironment, type StreamState } from '../stream/resuming-stream.ts'
import { Backlog } from './backlog.ts'
import { LogBuffer, type LogEntry, type LogSource } from './log-buffer.ts'
import { OutageRemark } from './outage-remark.ts'
import { TraceJoiner } from './trace-joiner.ts'

const SLICE_MS = 6
/** A stream that waited this long for a chunk has received what was written before. */
const CAUGHT_UP_MS = 150
/** Lines that were written before are shown after this time in any case. */
const BACKLOG_MS = 1500
/** Lines between two positions that a link to a line can start at. */
const CHECKPOINT_LINES = 50
/** Of more logs, the state of the earlier ones is forgotten: a faulty host may name another file in each frame. */
const LOGS_MAX = 50_000
/** Sources that are listed; a tail tells one from several. */
const SOURCES_MAX = 1000
/** Lines to show before the line of a link. */
const CONTEXT_LINES = 20

export interface SessionOptions {
  readonly target: LogTarget
  readonly selection: LogSelection
  readonly linesMax?: number
  readonly heightOf: (entry: LogEntry) => number
  readonly open: StreamEnvironment['open']
  readonly delay: StreamEnvironment['delay']
  /** Resolves when the page has drawn a frame. */
  readonly nextFrame: () => Promise<void>
  readonly onChange: () => void
  /** A line was added to an entry. */
  readonly onEntryChange?: (entry: LogEntry) => void
}

/** Characters of an ID that people compare. */
const SHORT_ID = 8

interface OpenLog {
  readonly source: LogSource
  readonly joiner: TraceJoiner
  /** The entry that a continuation belongs to. */
  last: LogEntry | undefined
  /** A line that is shown before its end was received. */
  incomplete: LogEntry | undefined
}

interface Checkpoint {
  readonly entryId: number
  readonly cursor: string
}

export class LogSession {
  readonly buffer: LogBuffer
  /** The first ones. */
  readonly sources: LogSource[] = []
  #sourceCount = 0
  /** Why logs of a job cannot be read, by allocation. */
  readonly failedLogs = new Map<string, string>()
  /** For remarks: allocations with their hosts, by ID. Set when the server has returned them. */
  remarkNames: ReadonlyMap<string, string> = new Map()
  state: StreamState = { kind: 'connecting' }
  /** Lines that were written before the tail was live; undefined until then. */
  linesBefore: number | undefined
  /** True while lines behind the visible part are limited. */
  isHeld = false
  /** The last entry that the user sees. */
  lastSeenId = 0
  /** True while reading waits for the user. */
  isFull = false
  readonly #options: SessionOptions
  readonly #splitter = new LineSplitter()
  readonly #logs = new Map<string, OpenLog>()
  readonly #stream: ResumingStream
  /** By allocation for a job. */
  readonly #checkpoints = new Map<string, Checkpoint[]>()
  readonly #abort = new AbortController()
  #wake: (() => void) | undefined
  #sliceAtMs = 0
  #waitedSinceMs = performance.now()
  #isCaughtUp = false
  /** Until the tail is live. */
  #backlog: Backlog | undefined
  #backlogSinceMs: number | undefined
  #backlogTimer: ReturnType<typeof setTimeout> | undefined
  readonly #outage: OutageRemark

  constructor(options: SessionOptions) {
    this.#options = options
    this.buffer = new LogBuffer(options)
    this.#outage = new OutageRemark(this.buffer)
    const { selection, target } = options
    const isShort = selection.lines !== undefined || selection.since !== undefined
    if (isShort && (target.kind !== 'task' || selection.type === '*')) this.#backlog = new Backlog()
    const environment = { open: options.open, delay: options.delay, admit: () => this.#admit() }
    this.#stream = new ResumingStream(options.target, options.selection, environment, {
      onFrames: (frames) => this.#take(frames),
      onState: (state) => this.#setState(state),
    })
  }

  start(): void {
    void this.#stream.run(this.#abort.signal)
  }

  /** Follows again after the end of the tasks. */
  restart(): void {
    if (this.state.kind === 'ended' || this.state.kind === 'failed') this.start()
  }

  close(): void {
    this.#abort.abort()
    clearTimeout(this.#backlogTimer)
    this.#wake?.()
  }

  /** The user looks at another part, or follows again. */
  look(isHeld: boolean, lastSeenId: number): void {
    this.isHeld = isHeld
    this.lastSeenId = lastSeenId
    if (!this.#isAhead()) this.#wake?.()
  }

  /** A cursor before the entry, for a link to it: the last known one with some lines between. */
  cursorBefore(entry: LogEntry): string | undefined {
    const key = this.#checkpointKey(entry.source?.log.allocationId)
    const before = this.#isFiltered ? 1 : CONTEXT_LINES
    return this.#checkpoints.get(key)?.findLast(({ entryId }) => entryId <= entry.id - before)?.cursor
  }

  get #isFiltered(): boolean {
    return this.#options.selection.grep !== ''
  }

  #isAhead(): boolean {
    return this.isHeld && this.buffer.end - this.lastSeenId > this.buffer.linesMax / 2
  }

  #admit(): Promise<void> | undefined {
    const nowMs = performance.now()
    this.#waitedSinceMs = nowMs
    if (this.#isAhead()) return this.#waitForUser()
    if (nowMs - this.#sliceAtMs < SLICE_MS) return undefined
    return this.#waitForFrame()
  }

  async #waitForFrame(): Promise<void> {
    await this.#options.nextFrame()
    this.#sliceAtMs = this.#waitedSinceMs = performance.now()
  }

  async #waitForUser(): Promise<void> {
    this.isFull = true
    this.#options.onChange()
    while (this.#isAhead() && !this.#abort.signal.aborted) {
      await new Promise<void>((resolve) => (this.#wake = resolve))
    }
    this.#wake = undefined
    this.isFull = false
    this.#waitedSinceMs = performance.now()
    this.#options.onChange()
  }

  #take(frames: readonly Frame[]): void {
    const nowMs = performance.now()
    if (nowMs - this.#waitedSinceMs > CAUGHT_UP_MS) {
      this.#isCaughtUp = true
      // The work of a slice does not include the time before its chunk.
      this.#sliceAtMs = nowMs
    }
    const receivedMs = this.#isCaughtUp ? Date.now() : 0
    const before = this.buffer.end
    if (this.#isCaughtUp) {
      this.#endBacklog()
      this.linesBefore ??= this.buffer.addedLines
    }
    for (const frame of frames) {
      if (frame.event !== '') this.#remarkEvent(frame)
      if (frame.data !== undefined && this.failedLogs.delete(frame.allocationId)) {
        this.buffer.appendRemark(`The log of ${this.placeOf(frame.allocationId)} is read again.`)
      }
      for (const line of this.#splitter.push(frame)) {
        if (this.#backlog) this.#backlog.push(line)
        else this.#add(line, receivedMs)
      }
      if (frame.cursor !== undefined && !this.#backlog) this.#keepCheckpoint(frame.cursor, frame.allocationId)
    }
    if (this.#backlog) this.#keepBacklog(this.#backlog)
    // A heartbeat: nothing was written for a second.
    if (this.#isCaughtUp && frames.every(({ data }) => data === undefined)) this.#showIncomplete()
    this.buffer.trim()
    if (this.buffer.end !== before || frames.some(({ data }) => data !== undefined)) this.#options.onChange()
  }

  #keepBacklog(backlog: Backlog): void {
    clearTimeout(this.#backlogTimer)
    this.#backlogSinceMs ??= performance.now()
    if (backlog.isFull || performance.now() - this.#backlogSinceMs > BACKLOG_MS) this.#endBacklog()
    else this.#backlogTimer = setTimeout(() => this.#endBacklog(), CAUGHT_UP_MS)
  }

  #endBacklog(): void {
    clearTimeout(this.#backlogTimer)
    const lines = this.#backlog?.take() ?? []
    this.#backlog = undefined
    for (const line of lines) this.#add(line, 0)
    this.buffer.trim()
    if (lines.length > 0) this.#options.onChange()
  }

  #add({ endOffset, file, log, text }: RawLine, receivedMs: number): void {
    const open = this.#logOf(log)
    const isMore = open.joiner.continues(text)
    if (open.incomplete) {
      this.#complete(open, { endOffset, file, log, text })
      open.incomplete = undefined
      return
    }
    if (isMore && open.last && this.buffer.appendTo(open.last, text)) {
      this.#options.onEntryChange?.(open.last)
      return
    }
    open.last = this.buffer.append({ source: open.source, text, file, endOffset, receivedMs })
  }

  /** Shows lines whose ends do not arrive, such as those of a prompt. */
  #showIncomplete(): void {
    for (const line of this.#splitter.incomplete()) {
      const open = this.#logOf(line.log)
      if (open.incomplete) this.#complete(open, line)
      else {
        open.incomplete = this.buffer.append({ ...line, source: open.source, receivedMs: Date.now() })
        open.last = open.incomplete
      }
    }
  }

  #complete({ incomplete }: OpenLog, line: RawLine): void {
    if (!incomplete || incomplete.text === line.text) return
    this.buffer.complete(incomplete, line)
    this.#options.onEntryChange?.(incomplete)
    this.#options.onChange()
  }

  #logOf(log: RawLine['log']): OpenLog {
    const key = `${log.allocationId}\0${log.task}\0${log.type}`
    const known = this.#logs.get(key)
    if (known) return known
    const source = { index: this.#sourceCount++, log }
    if (this.sources.length < SOURCES_MAX) this.sources.push(source)
    if (this.#logs.size >= LOGS_MAX) this.#logs.clear()
    const open: OpenLog = { source, joiner: new TraceJoiner(), last: undefined, incomplete: undefined }
    this.#logs.set(key, open)
    return open
  }

  /** Only the server labels frames with an allocation, and only those of a job. */
  #checkpointKey(allocationId = ''): string {
    return this.#options.target.kind === 'job' ? allocationId : ''
  }

  #keepCheckpoint(cursor: string, allocationId: string): void {
    const key = this.#checkpointKey(allocationId)
    const known = this.#checkpoints.get(key) ?? []
    const last = known.at(-1)
    const entryId = this.buffer.end
    if (last && entryId - last.entryId < (this.#isFiltered ? 1 : CHECKPOINT_LINES)) return
    known.push({ entryId, cursor })
    // One before the oldest entry is kept.
    while ((known[1]?.entryId ?? Infinity) <= this.buffer.first) known.shift()
    this.#checkpoints.set(key, known)
  }

  placeOf(allocationId: string): string {
    return this.remarkNames.get(allocationId) ?? `allocation ${allocationId.slice(0, SHORT_ID)}`
  }

  #remarkEvent(frame: Frame): void {
    const { allocationId, error, event, file } = frame
    if (event === 'log ended') return
    if (event === 'log failed') {
      this.failedLogs.set(allocationId, error)
      this.buffer.appendRemark(`The log of ${this.placeOf(allocationId)} cannot be read: ${error}`)
    } else {
      this.#splitter.discard(frame)
      const what = event === 'file truncated' ? 'was truncated' : 'was removed'
      const of = file === '' ? `The log of ${this.placeOf(allocationId)}` : file
      this.buffer.appendRemark(`${of} ${what}: lines may be missing here.`)
    }
  }

  #setState(state: StreamState): void {
    this.state = state
    if (state.kind === 'disconnected' || state.kind === 'ended' || state.kind === 'failed') this.#endBacklog()
    if (state.kind === 'disconnected') {
      this.#isCaughtUp = false
      this.#outage.begin(state.reason)
    }
    if (state.kind === 'open') this.#outage.end()
    if (state.kind === 'ended') {
      for (const line of this.#splitter.finish()) this.#add(line, 0)
      this.buffer.appendRemark('The tasks have ended: this is the end of the log.')
    }
    if (state.kind === 'failed') this.buffer.appendRemark(`The log cannot be read: ${state.error.message}`)
    this.#options.onChange()
  }
}
