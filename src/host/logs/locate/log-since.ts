/**
 * Finds the position of `since=` in a log: the first that is not older than a time.
 *
 * Files modified before the time are skipped. Of the others, in order: a file with timestamps starts at its first line that is
 * not older, regardless of later lines, so that a clock that was set back hides nothing; if all are older, the next file is
 * searched. Lines without a timestamp belong to the previous one. A file without timestamps starts at its first byte. If
 * nothing is left, the position is the end of the log.
 *
 * A file is read from its beginning. In a large file only its beginning shows whether it has timestamps, and the position is
 * found by bisection, which assumes increasing times.
 */
import { parseDurationMs } from '../../../platform/duration.ts'
import { Refusal } from '../../../platform/errors.ts'
import { TimestampParser, STAMP_BYTES_MAX } from './line-timestamp.ts'
import type { LogPosition } from './log-files.ts'
import { BLOCK_BYTES, endPosition, type IndexedFile, withBlock } from './log-position.ts'
import { spendTurn } from '../../files/read.ts'

const NEWLINE = 10
/** Kernels set mtime to the time of the last tick, which may be this much behind the clock. */
const FILE_CLOCK_GRAIN_MS = 10

export interface SinceLimits {
  /** Larger files are bisected. */
  readonly linearBytesMax: number
  /** Bytes of a large file that are searched for a timestamp, and the size at which bisection ends. */
  readonly windowBytes: number
}

const LIMITS: SinceLimits = { linearBytesMax: 16 << 20, windowBytes: 1 << 20 }

const FORMS = 'use a time such as 2026-11-21T10:00:00Z or 2026-11-21T10:00:00+02:00, or a duration such as 1h30m or 90s'
/** An unescaped `+` of a query arrives as a space. */
const RFC_3339 = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,30})?(?:[Zz]|[+\- ](?:[01]\d|2[0-3]):[0-5]\d)$/

/**
 * Parses `since=`: an RFC 3339 time, or a Go duration before `nowMs`. Milliseconds since the epoch, with fraction. Times in the
 * future are valid. Throws a Refusal that shows both forms.
 */
export function parseSince(text: string, nowMs: number): number {
  const agoMs = parseDurationMs(text)
  if (agoMs !== undefined && agoMs < 0) throw new Refusal('invalid_request', `since must not be negative: ${FORMS}`)
  if (agoMs !== undefined) return nowMs - agoMs
  if (RFC_3339.test(text)) {
    const bytes = Buffer.from(text.replace(' ', '+'))
    const timeMs = new TimestampParser(nowMs).at(bytes, 0, bytes.length)
    if (!Number.isNaN(timeMs)) return timeMs
  }
  throw new Refusal('invalid_request', `since is neither a time nor a duration: ${FORMS}`)
}

/**
 * The first position of the log that is not older than `sinceMs` (milliseconds since the epoch). `files` must not be empty and
 * stay open. Rejects with the signal's reason on abort.
 */
export function sincePosition(
  files: readonly IndexedFile[],
  sinceMs: number,
  signal: AbortSignal,
  limits: SinceLimits = LIMITS,
): Promise<LogPosition> {
  const end = endPosition(files)
  return withBlock(async (buffer) => {
    for (const [at, file] of files.entries()) {
      if (file.size === 0 || file.modifiedMs < sinceMs - FILE_CLOCK_GRAIN_MS) continue
      const startsLine = await startsWithLine(files.slice(0, at), buffer)
      const search = new FileSearch({ file, later: files.slice(at + 1), startsLine, buffer, signal, limits })
      const offset = await search.first(sinceMs)
      if (offset !== undefined) return { index: file.index, offset }
    }
    return end
  })
}

/** False if the last line of the files before continues. */
async function startsWithLine(before: readonly IndexedFile[], buffer: Buffer): Promise<boolean> {
  for (const { file, size } of before.toReversed()) {
    if (size > 0 && (await file.read(buffer, 0, 1, size - 1)) > 0) return buffer[0] === NEWLINE
  }
  return true
}

interface ScanOutcome {
  /** At least one timestamp was found. */
  readonly stamped: boolean
  /** The first line that is not older than the time. */
  readonly found?: { readonly offset: number; readonly timeMs: number }
}

class FileSearch {
  readonly #file: IndexedFile
  readonly #later: readonly IndexedFile[]
  readonly #startsLine: boolean
  readonly #buffer: Buffer
  readonly #signal: AbortSignal
  readonly #limits: SinceLimits
  readonly #times: TimestampParser

  constructor(options: {
    file: IndexedFile
    later: readonly IndexedFile[]
    startsLine: boolean
    buffer: Buffer
    signal: AbortSignal
    limits: SinceLimits
  }) {
    this.#file = options.file
    this.#later = options.later
    this.#startsLine = options.startsLine
    this.#buffer = options.buffer
    this.#signal = options.signal
    this.#limits = options.limits
    this.#times = new TimestampParser(options.file.modifiedMs)
  }

  /** The first position that is not older; undefined if the whole file is older. */
  async first(sinceMs: number): Promise<number | undefined> {
    const { linearBytesMax, windowBytes } = this.#limits
    const { size } = this.#file
    const large = size > linearBytesMax
    const head = await this.#scan(0, large ? windowBytes : size, sinceMs)
    if (head.found) return head.found.offset
    if (!head.stamped) return 0
    return large ? this.#bisect(sinceMs) : undefined
  }

  /** As `first`, for a large file with only older timestamps in its first window. */
  async #bisect(sinceMs: number): Promise<number | undefined> {
    const { windowBytes } = this.#limits
    let low = windowBytes
    let high = this.#file.size
    let known: number | undefined
    while (high - low > windowBytes) {
      const middle = low + Math.floor((high - low) / 2)
      const { found } = await this.#scan(middle, high, Number.NEGATIVE_INFINITY)
      if (found && found.timeMs < sinceMs) low = found.offset
      else {
        // No line between the middle and the found one has a timestamp.
        high = middle
        known = found?.offset ?? known
      }
    }
    return (await this.#scan(low, high, sinceMs)).found?.offset ?? known
  }

  /** Scans the lines that begin in `[from, to)`, up to the first that is not older. */
  async #scan(from: number, to: number, sinceMs: number): Promise<ScanOutcome> {
    // The byte in front shows whether a line begins at `from`.
    let position = Math.max(from - 1, 0)
    let inLine = from > 0 || !this.#startsLine
    let stamped = false
    while (position < to) {
      const { got, length, last } = await this.#read(position)
      if (got === 0) break
      const block = this.#buffer.subarray(0, got)
      let at = inLine ? block.indexOf(NEWLINE) + 1 : 0
      if (inLine && at === 0) at = got
      else inLine = false
      while (at < got && position + at < to) {
        const newline = block.indexOf(NEWLINE, at)
        // The timestamp may be incomplete: the next block starts with this line.
        if (newline < 0 && !last && at + STAMP_BYTES_MAX > got) break
        const lineEnd = newline < 0 ? length : newline
        const timeMs = this.#times.at(this.#buffer, at, Math.min(at + STAMP_BYTES_MAX, lineEnd))
        if (timeMs >= sinceMs) return { stamped: true, found: { offset: position + at, timeMs } }
        stamped ||= !Number.isNaN(timeMs)
        inLine = newline < 0
        at = inLine ? got : newline + 1
      }
      position += at
    }
    return { stamped }
  }

  /**
   * Reads a block of the file. At the end of the file, up to STAMP_BYTES_MAX bytes of the next files are appended to its `got`
   * bytes, because its last line may continue there; `length` includes them.
   */
  async #read(position: number): Promise<{ got: number; length: number; last: boolean }> {
    this.#signal.throwIfAborted()
    const { file, size } = this.#file
    const wanted = Math.min(BLOCK_BYTES, size - position)
    const got = await file.read(this.#buffer, 0, wanted, position)
    const turn = spendTurn(got)
    if (turn) await turn
    const last = got < wanted || position + got >= size
    if (!last) return { got, length: got, last }
    let length = got
    for (const next of this.#later) {
      const missing = Math.min(got + STAMP_BYTES_MAX - length, next.size)
      if (missing > 0) length += await next.file.read(this.#buffer, length, missing, 0)
    }
    return { got, length, last }
  }
}
