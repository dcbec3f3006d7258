/**
 * The program's own log: one line an event, JSON for machines or plain for a terminal, written in the background.
 *
 * Promises: a log line never blocks a request and never throws into one; memory is bounded (`BUFFER_CHARS_MAX`), past
 * which lines are dropped and counted, and the count is written as soon as there is room. Lines keep their order.
 * Lines that could not be written (a full disk) count as dropped too, and writing is tried again with the next line.
 * Assumes that nobody puts a secret into `fields`: nothing is redacted here, because a filter that must guess will
 * guess wrong. What can go wrong: the descriptor is a pipe nobody drains (lines are dropped) or is closed (lines are
 * dropped); a process that is killed (SIGKILL) loses at most `FLUSH_MS` of lines that were not errors.
 */
import { write, writeSync } from 'node:fs'

export const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const
export type Level = (typeof LEVELS)[number]
export type Fields = Readonly<Record<string, string | number | boolean | null | undefined>>

export interface Logger {
  trace(message: string, fields?: Fields): void
  debug(message: string, fields?: Fields): void
  info(message: string, fields?: Fields): void
  warn(message: string, fields?: Fields): void
  error(message: string, fields?: Fields): void
  /** A logger for one part of the program; `name` stands in the `@module` of its lines. */
  named(name: string): Logger
  enabled(level: Level): boolean
}

/** One event, before it is known how it will be written. */
export interface LogEntry {
  /** RFC 3339, UTC. */
  readonly at: string
  readonly level: Level
  readonly module: string
  readonly message: string
  readonly fields: Fields
}

/** The entry as one line, without its end: JSON, or for people. */
export function entryLine(entry: LogEntry, json: boolean): string {
  if (!json) return plainLine(entry)
  const { at, level, module, message, fields } = entry
  const own = `{"@timestamp":"${at}","@level":"${level}","@module":${JSON.stringify(module)},"@message":${JSON.stringify(message)}`
  // The fields as they are: a copy of them beside the others takes twice as long to make and to put into text.
  const more = JSON.stringify(fields)
  return more === '{}' ? `${own}}` : `${own},${more.slice(1)}`
}

let newestMs = 0
let newestText = ''

/** RFC 3339, UTC. The last one is remembered: many lines are of one millisecond. */
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

/** What lines are written to. */
export interface LogOutput {
  /** Appends; calls back once, with the number of bytes that were written before an error, if there was one. */
  append(bytes: Buffer, done: (written: number) => void): void
  /** The same, blocking; may throw. */
  appendSync(bytes: Buffer): void
  close(): void
}

/** An open descriptor, which stays whose it is. */
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
    // Standard error is not ours to close.
  }
}

const LINE_END = 0x0a

/** Where lines go: shared by every logger of a process. */
export class LogSink {
  #level: number
  /** What the sink itself and all who listen in want together. */
  #lowest: number
  readonly #listeners = new Set<{ readonly level: number; readonly take: (entry: LogEntry) => void }>()
  #output: LogOutput
  /** Outputs to close once nothing is on its way to them. */
  readonly #left: LogOutput[] = []
  #json: boolean
  #pending = ''
  #writing = false
  #dropped = 0
  /** The last write stopped in the middle of a line. */
  #torn = false
  #timer: NodeJS.Timeout | undefined

  /** `json` for machines; otherwise lines for people. */
  constructor(options: { output: LogOutput; level: Level; json?: boolean }) {
    this.#output = options.output
    this.#json = options.json ?? true
    this.#level = LEVELS.indexOf(options.level)
    this.#lowest = this.#level
  }

  /** From the next lines on, they go there and look so. The output before is closed once it has what it was given. */
  redirect(output: LogOutput, json: boolean): void {
    this.#json = json
    if (output === this.#output) return
    this.#left.push(this.#output)
    this.#output = output
    if (!this.#writing) this.#closeLeft()
  }

  #closeLeft(): void {
    for (const output of this.#left.splice(0)) output.close()
  }

  setLevel(level: Level): void {
    this.#level = LEVELS.indexOf(level)
    this.#findLowest()
  }

  #findLowest(): void {
    this.#lowest = Math.min(this.#level, ...[...this.#listeners].map((listener) => listener.level))
  }

  /** True when anybody wants lines of this level. */
  enabled(level: Level): boolean {
    return LEVELS.indexOf(level) >= this.#lowest
  }

  /** Hands every entry of at least this level to `take`, which must not throw, until what is returned is called. */
  listen(level: Level, take: (entry: LogEntry) => void): () => void {
    const listener = { level: LEVELS.indexOf(level), take }
    this.#listeners.add(listener)
    this.#findLowest()
    return () => {
      this.#listeners.delete(listener)
      this.#findLowest()
    }
  }

  /** Writes an entry, and tells those who listen in. */
  take(entry: LogEntry): void {
    const level = LEVELS.indexOf(entry.level)
    if (level >= this.#level) this.line(entryLine(entry, this.#json), entry.level === 'error')
    for (const listener of this.#listeners) if (level >= listener.level) listener.take(entry)
  }

  /** Queues one line (without its newline). `urgent` lines are handed to the system in this turn of the loop. */
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
    if (dropped > 0) this.#pending += `${droppedLine(dropped, this.#json)}\n`
    const bytes = Buffer.from(`${this.#torn ? '\n' : ''}${this.#pending}`)
    this.#pending = ''
    this.#writing = true
    this.#output.append(bytes, (written) => {
      if (written > 0) this.#torn = bytes[written - 1] !== LINE_END
      // What was not written includes the word about what was dropped before.
      if (written < bytes.length) this.#dropped += linesIn(bytes.subarray(written)) + dropped - (dropped > 0 ? 1 : 0)
      this.#writing = false
      this.#closeLeft()
      this.#flush()
    })
  }

  /** Writes what is queued, blocking; for the last moments of a process. */
  close(): void {
    clearTimeout(this.#timer)
    const rest = this.#pending
    this.#pending = ''
    try {
      if (rest !== '') this.#output.appendSync(Buffer.from(rest))
      this.#output.close()
    } catch {
      // The output is gone or full, and so is the process: there is nobody left to tell.
    }
  }
}

function linesIn(bytes: Buffer): number {
  let lines = 0
  for (let at = bytes.indexOf(LINE_END); at >= 0; at = bytes.indexOf(LINE_END, at + 1)) lines++
  return lines
}

function droppedLine(lines: number, json: boolean): string {
  return entryLine(
    { at: timeNow(), level: 'warn', module: 'outpost.log', message: 'log lines dropped', fields: { lines } },
    json,
  )
}

/** A logger that writes to `sink`. */
export function createLogger(sink: LogSink, name = 'outpost'): Logger {
  const emit = (level: Level, message: string, fields?: Fields) => {
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

/** `2026-11-21T10:00:00.000Z [INFO]  outpost.http: request: method=GET status=200`, on one line whatever the values. */
function plainLine({ at, level, module, message, fields }: LogEntry): string {
  const pairs = Object.entries(fields).filter(([, value]) => value !== undefined)
  const shown = pairs.map(
    ([key, value]) => `${key}=${/^[\w./:-]+$/.test(String(value)) ? value : JSON.stringify(value)}`,
  )
  const tag = `[${level.toUpperCase()}]`.padEnd(7)
  return `${at} ${tag} ${module}: ${message}${shown.length > 0 ? `: ${shown.join(' ')}` : ''}`
}

/** How often a thing that keeps happening is said: once, or once in a while. */
export interface LogOnceOptions {
  /** After this time it is said again; unless given, only after it was forgotten. */
  readonly everyMs?: number
  /** Things that are remembered: beyond, the oldest gives way, or, where nothing is said again, a new one is not said. */
  readonly kindsMax?: number
}

/** Remembers what was said, so that what keeps happening, or what others do, does not fill the log. */
export class LogOnce {
  readonly #everyMs: number
  readonly #kindsMax: number
  readonly #kinds = new Map<string, { saidAtMs: number; count: number }>()

  constructor({ everyMs = Number.POSITIVE_INFINITY, kindsMax = 1000 }: LogOnceOptions = {}) {
    this.#everyMs = everyMs
    this.#kindsMax = kindsMax
  }

  /** Counts a thing: how often it has happened since it was last said where it is to be said now, else 0. */
  due(kind = ''): number {
    const nowMs = performance.now()
    const known = this.#kinds.get(kind)
    if (!known) return this.#isRoom() ? this.#begin(kind, nowMs) : 0
    known.count++
    if (nowMs - known.saidAtMs < this.#everyMs) return 0
    const { count } = known
    known.saidAtMs = nowMs
    known.count = 0
    return count
  }

  /** When it happens again it is said. */
  forget(kind: string): void {
    this.#kinds.delete(kind)
  }

  clear(): void {
    this.#kinds.clear()
  }

  #begin(kind: string, nowMs: number): number {
    this.#kinds.set(kind, { saidAtMs: nowMs, count: 0 })
    return 1
  }

  #isRoom(): boolean {
    if (this.#kinds.size < this.#kindsMax) return true
    if (this.#everyMs === Number.POSITIVE_INFINITY) return false
    const [oldest = ''] = this.#kinds.keys()
    return this.#kinds.delete(oldest)
  }
}
