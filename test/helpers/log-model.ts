/**
 * A simple model of a rotated log and of the positions of its last lines and of a time, with strings, regular
 * expressions and dates of JavaScript.
 */
import type { LogPosition } from '../../src/host/logs/locate/log-files.ts'

export interface NaiveFile {
  readonly index: number
  /** Content, latin1. */
  readonly text: string
  readonly modifiedMs: number
}

const OPENING = /^(?:\[|"|\{ *"(?:@?timestamp|time|ts)" *: *"?|(?:timestamp|time|ts)="?)?/
const ISO =
  /^(\d{4})([-/])(\d\d)\2(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?!\d)(?:[.,](\d+))?(?:([Zz]| ?UTC| ?GMT)| ?([+-])(\d\d)(?::?(\d\d))?(?!\d))?/
const KLOG = /^[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?!\d)(?:[.,](\d+))?/
const SYSLOG = /^(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([ \d]\d) (\d\d):(\d\d):(\d\d)(?!\d)(?:[.,](\d+))?/
const EPOCH = /^((?!0)\d{9,19})(?:[.,](\d+))?(?![\w.-])/
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']
const LINE_HEAD = 96

const fractionOf = (digits = '') => Number(`0.${digits.slice(0, 9)}0`) * 1000
/** Program and model compute times differently and agree to a thousandth of a millisecond. */
export const rounded = (timeMs: number) => Math.round(timeMs * 1000) / 1000

/** Milliseconds since the epoch of the timestamp at the start of a line, or undefined. */
export function naiveTime(line: string, referenceMs: number): number | undefined {
  const head = line.slice(0, LINE_HEAD)
  const text = head.slice(OPENING.exec(head)?.[0].length ?? 0)
  const timeMs = isoTime(text) ?? yearlessTime(text, referenceMs) ?? epochTime(text)
  return timeMs === undefined ? undefined : rounded(timeMs)
}

function isoTime(text: string): number | undefined {
  const match = ISO.exec(text)
  if (!match) return undefined
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = [1, 3, 4, 5, 6, 7].map((at) =>
    Number(match[at]),
  )
  if (!isMoment(year, month, day, hour, minute, second)) return undefined
  const zoned = match[9] !== undefined || (Number(match[11]) < 24 && Number(match[12] ?? 0) < 60)
  const fractionMs = fractionOf(match[8])
  if (!zoned && year >= 100) return new Date(year, month - 1, day, hour, minute, second).getTime() + fractionMs
  const east =
    zoned && match[9] === undefined ? Number(`${match[10]}1`) * (Number(match[11]) * 60 + Number(match[12] ?? 0)) : 0
  // Not Date.UTC, which maps years below 100 to the last century.
  const dayMs = new Date(0).setUTCFullYear(year, month - 1, day)
  return dayMs + ((hour * 60 + minute - east) * 60 + second) * 1000 + fractionMs
}

function isMoment(year: number, month: number, day: number, hour: number, minute: number, second: number): boolean {
  const date = new Date(Date.UTC(2000, 0, 1))
  date.setUTCFullYear(year, month - 1, day)
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day && hour < 24 && minute < 60 && second <= 60
}

function yearlessTime(text: string, referenceMs: number): number | undefined {
  const klog = KLOG.exec(text)
  const match = klog ?? SYSLOG.exec(text)
  if (!match) return undefined
  const month = klog ? Number(match[1]) : MONTHS.indexOf(match[1] ?? '') + 1
  const [day = 0, hour = 0, minute = 0, second = 0] = match.slice(2, 6).map(Number)
  const reference = new Date(referenceMs).getFullYear()
  const [nearest] = Array.from({ length: 17 }, (_, at) => reference - 8 + at)
    .filter((year) => isMoment(year, month, day, hour, minute, second))
    .map((year) => ({ year, away: Math.abs(new Date(year, month - 1, day, 12).getTime() - referenceMs) }))
    .sort((a, b) => a.away - b.away)
  if (!nearest) return undefined
  return new Date(nearest.year, month - 1, day, hour, minute, second).getTime() + fractionOf(match[6])
}

function epochTime(text: string): number | undefined {
  const match = EPOCH.exec(text)
  if (!match) return undefined
  const [fromMs, toMs] = [Date.UTC(2000, 0, 1), Date.UTC(2100, 0, 1)]
  const units = [1000, 1, 1e-3, 1e-6]
  const unit = units.find((ms) => Number(match[1]) * ms >= fromMs && Number(match[1]) * ms < toMs)
  return unit === undefined ? undefined : (Number(match[1]) + fractionOf(match[2]) / 1000) * unit
}

const startsOf = (files: readonly NaiveFile[]) =>
  files.map((_, at) => files.slice(0, at).reduce((sum, { text }) => sum + text.length, 0))

/** The start of each line of the log. */
function lineStarts(whole: string): number[] {
  const starts = whole === '' ? [] : [0]
  for (let at = whole.indexOf('\n'); at >= 0 && at + 1 < whole.length; at = whole.indexOf('\n', at + 1))
    starts.push(at + 1)
  return starts
}

function lineAt(whole: string, start: number): string {
  const end = whole.indexOf('\n', start)
  return whole.slice(start, end < 0 ? undefined : end)
}

const endOf = (files: readonly NaiveFile[]): LogPosition => ({
  index: files.at(-1)?.index ?? 0,
  offset: files.at(-1)?.text.length ?? 0,
})

export function naiveTail(files: readonly NaiveFile[], lines: number): LogPosition {
  if (lines === 0) return endOf(files)
  const starts = lineStarts(files.map(({ text }) => text).join(''))
  if (lines >= starts.length) return { index: files[0]?.index ?? 0, offset: 0 }
  const at = starts.at(-lines) ?? 0
  const begins = startsOf(files)
  const file = files.findIndex(({ text }, index) => at < (begins[index] ?? 0) + text.length)
  return { index: files[file]?.index ?? 0, offset: at - (begins[file] ?? 0) }
}

/** `headBytes`: a file has timestamps if a line that starts within this number of bytes has one. */
export function naiveSince(
  files: readonly NaiveFile[],
  sinceMs: number,
  headBytes: (file: NaiveFile) => number = () => Number.POSITIVE_INFINITY,
): LogPosition {
  const whole = files.map(({ text }) => text).join('')
  const starts = lineStarts(whole)
  const begins = startsOf(files)
  for (const [at, file] of files.entries()) {
    if (file.text === '' || file.modifiedMs < sinceMs - 10) continue
    const begin = begins[at] ?? 0
    const stamps = starts
      .filter((start) => start >= begin && start < begin + file.text.length)
      .map((start) => ({ start, timeMs: naiveTime(lineAt(whole, start), file.modifiedMs) }))
      .filter((line): line is { start: number; timeMs: number } => line.timeMs !== undefined)
    if (!stamps.some(({ start }) => start - begin < headBytes(file))) return { index: file.index, offset: 0 }
    const first = stamps.find(({ timeMs }) => timeMs >= sinceMs)
    if (first) return { index: file.index, offset: first.start - begin }
  }
  return endOf(files)
}
