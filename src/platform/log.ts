/**
 * The log of the process: one line for each event, JSON or plain text, written in the background.
 *
 * Promises. A log line never blocks a request and never throws. Memory is bounded by `BUFFER_CHARS_MAX`: further lines are dropped and
 * counted, and the count is logged once lines are written again. Lines keep their order. Lines that could not be written (full
 * disk) count as dropped; the next line is a new attempt.
 *
 * Assumptions. `fields` never contains a secret: nothing is redacted here, because a filter that guesses is wrong sometimes.
 *
 * Failure modes. The descriptor is a pipe that is not drained, or closed: lines are dropped. SIGKILL loses at most `FLUSH_MS` of lines
 * below the level `error`.
 */
import { write, writeSync } from 'node:fs'

export const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const
export type Level = (typeof LEVELS)[number]
export type LogFields = Readonly<Record<string, string | number | boolean | null | undefined>>

export interface Logger {
  trace(message: string, fields?: LogFields): void
  debug(message: string, fields?: LogFields): void
  info(message: string, fields?: LogFields): void
  warn(message: string, fields?: LogFields): void
  error(message: string, fields?: LogFields): void
  /** A logger for a part of the program; `name` is appended to `@module`. */
  named(name: string): Logger
  enabled(level: Level): boolean
}

/** One event, before it is formatted. */
export interface LogEntry {
  /** RFC 3339, UTC. */
  readonly at: string
  readonly level: Level
  readonly module: string
  readonly message: string
  readonly fields: LogFields
}

/** The entry as one line without its newline, JSON or plain. */
export function entryLine(entry: LogEntry, json: boolean): string {
  if (!json) return plainLine(entry)
  const { at, level, module, message, fields } = entry
  const own = `{"@timestamp":"${at}","@level":"${level}","@module":${JSON.stringify(module)},"@message":${JSON.stringify(message)}`
  // Merging the fields into one object first takes twice as long.
  const more = JSON.stringify(fields)
  return more === '{}' ? `${own}}` : `${own},${more.slice(1)}`
}

let newestMs = 0
let newestText = ''

/** RFC 3339, UTC. The last value is cached: many lines share a millisecond. */
function timeNow(): string {
  const ms = Date.now()
  if (ms !== newestMs || newestText === '') {
    newestText = new Date(ms).toISOString()
    newestMs = ms
  }
  return newestText
}

const BUFFER_CHARS_MAX = 1 << 20
const FLUSH_MS = 20

/** Destination of log lines. */
export interface LogOutput {
  /** Appends; calls back once with the number of bytes written, less than all after an error. */
  append(bytes: Buffer, done: (written: number) => void): void
  /** The same, blocking; may throw. */
  appendSync(bytes: Buffer): void
  close(): void
}

/** An open descriptor, which is not closed. */
export class DescriptorOutput implements LogOutput {
  readonly #fd: number

  constructor(fd: number) {
    this.#fd = fd
  }

  append(bytes: Buffer, done: (written: number) => void): void {
    const from = (at: number) => {
      write(this.#fd, bytes, at, bytes.length - at, null, (error, written) => {
        if (error?.code === 'EAGAIN') return void setTimeout(() => from(at), FLUSH_MS).unref()
        if (error || at + written >= bytes.length) return done(error ? at : at + written)
        from(at + written)
      })
    }
    from(0)
  }

  appendSync(bytes: Buffer): void {
    writeSync(this.#fd, bytes)
  }

  close(): void {
    // Standard error stays open.
  }
}

const LINE_END = 0x0a

/** Prefixes of sd-daemon(3). The journal removes them and stores the priority of the line. */
const JOURNAL_PRIORITIES: Readonly<Record<Level, string>> = {
  error: '<3>',
  warn: '<4>',
  info: '<6>',
  debug: '<7>',
  trace: '<7>',
}

/** Formats and buffers the lines of all loggers of a process. */
export class LogSink {
  #level: number
  /** The lowest level of the sink and its listeners. */
  #lowest: number
  readonly #listeners = new Set<{ readonly level: number; readonly take: (entry: LogEntry) => void }>()
  #output: LogOutput
  /** Replaced outputs, closed after the write in progress. */
  readonly #replaced: LogOutput[] = []
  /** Callers of `drain`. */
  readonly #waiting: (() => void)[] = []
  #json: boolean
  #hasPriorities: boolean
  #pending = ''
  #writing = false
  #dropped = 0
  /** The last write ended within a line. */
  #torn = false
  #timer: NodeJS.Timeout | undefined

  /** `json`: JSON lines; otherwise plain text. `hasPriorities`: each line starts with its priority, for the journal. */
  constructor(options: { output: LogOutput; level: Level; json?: boolean; hasPriorities?: boolean }) {
    this.#output = options.output
    this.#json = options.json ?? true
    this.#hasPriorities = options.hasPriorities ?? false
    this.#level = LEVELS.indexOf(options.level)
    this.#lowest = this.#level
  }

  /** Changes output and format for the next lines. The old output is closed after its last write. */
  redirect(output: LogOutput, json: boolean, hasPriorities = false): void {
    this.#json = json
    this.#hasPriorities = hasPriorities
    if (output === this.#output) return
    this.#replaced.push(this.#output)
    this.#output = output
    if (!this.#writing) this.#closeReplaced()
  }

  #closeReplaced(): void {
    for (const output of this.#replaced.splice(0)) output.close()
  }

  setLevel(level: Level): void {
    this.#level = LEVELS.indexOf(level)
    this.#findLowest()
  }

  #findLowest(): void {
    this.#lowest = Math.min(this.#level, ...[...this.#listeners].map((listener) => listener.level))
  }

  /** True if lines of this level have a reader. */
  enabled(level: Level): boolean {
    return LEVELS.indexOf(level) >= this.#lowest
  }

  /** Passes every entry of at least this level to `take`, which must not throw. Returns the function that ends it. */
  listen(level: Level, take: (entry: LogEntry) => void): () => void {
    const listener = { level: LEVELS.indexOf(level), take }
    this.#listeners.add(listener)
    this.#findLowest()
    return () => {
      this.#listeners.delete(listener)
      this.#findLowest()
    }
  }

  /** Writes an entry and passes it to the listeners. */
  take(entry: LogEntry): void {
    const level = LEVELS.indexOf(entry.level)
    if (level >= this.#level) this.line(this.#lineOf(entry), entry.level === 'error')
    for (const listener of this.#listeners) if (level >= listener.level) listener.take(entry)
  }

  #lineOf(entry: LogEntry): string {
    const line = entryLine(entry, this.#json)
    return this.#hasPriorities ? `${JOURNAL_PRIORITIES[entry.level]}${line}` : line
  }

  /** Queues one line without its newline. `urgent`: written in this iteration of the event loop. */
  line(text: string, urgent: boolean): void {
    if (this.#pending.length + text.length > BUFFER_CHARS_MAX) {
      this.#dropped++
      return
    }
    this.#pending += `${text}\n`
    if (urgent) this.#flush()
    else this.#timer ??= setTimeout(() => this.#flush(), FLUSH_MS).unref()
  }

  #flush(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#writing || this.#pending === '') return
    const dropped = this.#dropped
    this.#dropped = 0
    if (dropped > 0) this.#pending += `${this.#lineOf(droppedEntry(dropped))}\n`
    const bytes = Buffer.from(`${this.#torn ? '\n' : ''}${this.#pending}`)
    this.#pending = ''
    this.#writing = true
    this.#output.append(bytes, (written) => {
      if (written > 0) this.#torn = bytes[written - 1] !== LINE_END
      // The unwritten bytes may include the line that reports earlier drops.
      if (written < bytes.length) this.#dropped += linesIn(bytes.subarray(written)) + dropped - (dropped > 0 ? 1 : 0)
      this.#writing = false
      this.#closeReplaced()
      this.#flush()
      if (!this.#writing) for (const resolve of this.#waiting.splice(0)) resolve()
    })
  }

  /** Resolves when all queued lines are written; not before an output that accepts nothing has a reader again. */
  drain(): Promise<void> {
    this.#flush()
    return this.#writing ? new Promise((resolve) => this.#waiting.push(resolve)) : Promise.resolve()
  }

  /** Writes all queued lines synchronously, at process exit. */
  close(): void {
    clearTimeout(this.#timer)
    const rest = this.#pending
    this.#pending = ''
    try {
      if (rest !== '') this.#output.appendSync(Buffer.from(rest))
      this.#output.close()
    } catch {
      // The process exits, and the output accepts nothing: the error has no destination.
    }
  }
}

function linesIn(bytes: Buffer): number {
  let lines = 0
  for (let at = bytes.indexOf(LINE_END); at >= 0; at = bytes.indexOf(LINE_END, at + 1)) lines++
  return lines
}

function droppedEntry(lines: number): LogEntry {
  return { at: timeNow(), level: 'warn', module: 'outpost.log', message: 'log lines dropped', fields: { lines } }
}

/** A logger that writes to `sink`. */
export function createLogger(sink: LogSink, name = 'outpost'): Logger {
  const emit = (level: Level, message: string, fields?: LogFields) => {
    if (!sink.enabled(level)) return
    sink.take({ at: timeNow(), level, module: name, message, fields: fields ?? {} })
  }
  return {
    trace: (message, fields) => emit('trace', message, fields),
    debug: (message, fields) => emit('debug', message, fields),
    info: (message, fields) => emit('info', message, fields),
    warn: (message, fields) => emit('warn', message, fields),
    error: (message, fields) => emit('error', message, fields),
    named: (child) => createLogger(sink, `${name}.${child}`),
    enabled: (level) => sink.enabled(level),
  }
}

/** `2026-11-21T10:00:00.000Z [INFO]  outpost.http: request: method=GET status=200`, always on one line. */
function plainLine({ at, level, module, message, fields }: LogEntry): string {
  const pairs = Object.entries(fields).filter(([, value]) => value !== undefined)
  const shown = pairs.map(
    ([key, value]) => `${key}=${/^[\w./:-]+$/.test(String(value)) ? value : JSON.stringify(value)}`,
  )
  const tag = `[${level.toUpperCase()}]`.padEnd(7)
  return `${at} ${tag} ${module}: ${message}${shown.length > 0 ? `: ${shown.join(' ')}` : ''}`
}

/** Logs nothing: for modules whose caller reports the results itself. */
export const SILENT_LOGGER: Logger = {
  trace: () => undefined,
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  named: () => SILENT_LOGGER,
  enabled: () => false,
}

/** How often a repeated event is logged. */
export interface LogOnceOptions {
  /** Interval after which it is logged again; unless given, only after `forget`. */
  readonly everyMs?: number
  /** Kinds that are remembered. Beyond: the oldest is evicted, or without `everyMs` a new one is not logged. */
  readonly kindsMax?: number
}

/** Remembers which kinds of events were logged, so that a repeated event does not fill the log. */
export class LogOnce {
  readonly #everyMs: number
  readonly #kindsMax: number
  readonly #kinds = new Map<string, { loggedAtMs: number; count: number }>()

  constructor({ everyMs = Number.POSITIVE_INFINITY, kindsMax = 1000 }: LogOnceOptions = {}) {
    this.#everyMs = everyMs
    this.#kindsMax = kindsMax
  }

  /** Counts an event. Returns the number of events since the last log line if one is due now, else 0. */
  due(kind = ''): number {
    const nowMs = performance.now()
    const known = this.#kinds.get(kind)
    if (!known) return this.#hasCapacity() ? this.#begin(kind, nowMs) : 0
    known.count++
    if (nowMs - known.loggedAtMs < this.#everyMs) return 0
    const { count } = known
    known.loggedAtMs = nowMs
    known.count = 0
    return count
  }

  /** Logs the next event of this kind. */
  forget(kind: string): void {
    this.#kinds.delete(kind)
  }

  clear(): void {
    this.#kinds.clear()
  }

  #begin(kind: string, nowMs: number): number {
    this.#kinds.set(kind, { loggedAtMs: nowMs, count: 0 })
    return 1
  }

  #hasCapacity(): boolean {
    if (this.#kinds.size < this.#kindsMax) return true
    if (this.#everyMs === Number.POSITIVE_INFINITY) return false
    const [oldest = ''] = this.#kinds.keys()
    return this.#kinds.delete(oldest)
  }
}

const RATE_LIMIT_INTERVAL_MS = 60_000

/**
 * Rate-limited log messages about what others send, so that a sender cannot fill the log. The first message of a kind is logged at
 * once, later ones once a minute with their count. The number of kinds is bounded: the oldest are forgotten.
 */
export class RateLimitedLogger {
  readonly #logger: Logger
  readonly #kinds = new LogOnce({ everyMs: RATE_LIMIT_INTERVAL_MS })

  constructor(logger: Logger) {
    this.#logger = logger
  }

  /** `message` is one of a few constants; details are fields. `key` identifies the kind. */
  warn(message: string, fields: LogFields, key = message): void {
    this.#log('warn', message, fields, key)
  }

  error(message: string, fields: LogFields, key = message): void {
    this.#log('error', message, fields, key)
  }

  #log(level: 'warn' | 'error', message: string, fields: LogFields, key: string): void {
    const count = this.#kinds.due(key)
    if (count > 0) this.#logger[level](message, { ...fields, count })
  }
}
