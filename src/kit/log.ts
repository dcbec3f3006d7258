/**
 * The program's own log: one line an event, JSON for machines or plain for a terminal, written in the background.
 *
 * Promises: a log line never blocks a request and never throws into one; memory is bounded (`BUFFER_BYTES_MAX`), past
 * which lines are dropped and counted, and the count is written as soon as there is room. Lines keep their order.
 * Assumes that nobody puts a secret into `fields`: nothing is redacted here, because a filter that must guess will
 * guess wrong. What can go wrong: the descriptor is a pipe nobody drains (lines are dropped) or is closed (lines are
 * dropped); a crash loses at most `FLUSH_MS` of lines that were not errors.
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
  const { at, level, module, message, fields } = entry
  if (!json) return plainLine(at, level, module, message, fields)
  return JSON.stringify({ '@timestamp': at, '@level': level, '@module': module, '@message': message, ...fields })
}

const BUFFER_BYTES_MAX = 1 << 20
const FLUSH_MS = 20

/** Where lines go: shared by every logger of a process. */
export class LogSink {
  #level: number
  /** What the sink itself and all who listen in want together. */
  #lowest: number
  readonly #listeners = new Set<{ readonly level: number; readonly take: (entry: LogEntry) => void }>()
  readonly #fd: number
  /** JSON lines; otherwise lines for people. */
  readonly json: boolean
  #pending = ''
  #writing = false
  #dropped = 0
  #timer: NodeJS.Timeout | undefined

  constructor(options: { fd: number; level: Level; json?: boolean }) {
    this.#fd = options.fd
    this.json = options.json ?? true
    this.#level = LEVELS.indexOf(options.level)
    this.#lowest = this.#level
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
    if (level >= this.#level) this.line(entryLine(entry, this.json), entry.level === 'error')
    for (const listener of this.#listeners) if (level >= listener.level) listener.take(entry)
  }

  /** Queues one line (without its newline). `urgent` lines are handed to the system in this turn of the loop. */
  line(text: string, urgent: boolean): void {
    if (this.#pending.length + text.length > BUFFER_BYTES_MAX) {
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
    if (this.#dropped > 0) {
      this.#pending += `${JSON.stringify({ '@level': 'warn', '@message': 'log lines dropped', lines: this.#dropped })}\n`
      this.#dropped = 0
    }
    const bytes = Buffer.from(this.#pending)
    this.#pending = ''
    this.#writing = true
    this.#writeAll(bytes, 0)
  }

  #writeAll(bytes: Buffer, from: number): void {
    write(this.#fd, bytes, from, bytes.length - from, null, (error, written) => {
      const next = error ? from : from + written
      if (error?.code === 'EAGAIN') {
        setTimeout(() => this.#writeAll(bytes, from), FLUSH_MS).unref()
        return
      }
      if (!error && next < bytes.length) return this.#writeAll(bytes, next)
      this.#writing = false
      this.#flush()
    })
  }

  /** Writes what is queued, blocking; for the last moments of a process. */
  close(): void {
    clearTimeout(this.#timer)
    const rest = this.#pending
    this.#pending = ''
    try {
      writeSync(this.#fd, rest)
    } catch {
      // The descriptor is gone or full, and so is the process: there is nobody left to tell.
    }
  }
}

/** A logger that writes to `sink`. */
export function createLogger(sink: LogSink, name = 'outpost'): Logger {
  const emit = (level: Level, message: string, fields?: Fields) => {
    if (!sink.enabled(level)) return
    sink.take({ at: new Date().toISOString(), level, module: name, message, fields: fields ?? {} })
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
function plainLine(at: string, level: Level, name: string, message: string, fields: Fields = {}): string {
  const pairs = Object.entries(fields).filter(([, value]) => value !== undefined)
  const shown = pairs.map(
    ([key, value]) => `${key}=${/^[\w./:-]+$/.test(String(value)) ? value : JSON.stringify(value)}`,
  )
  const tag = `[${level.toUpperCase()}]`.padEnd(7)
  return `${at} ${tag} ${name}: ${message}${shown.length > 0 ? `: ${shown.join(' ')}` : ''}`
}
