/**
 * Go's duration strings, strictly: a sign, then one or more decimal numbers each with a unit, nothing else.
 * `1h30m`, `1.5s`, `-2m`, `100us`, `0`. Not `30` (no unit), not `1d`, not `1h 30m`.
 */

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3, // U+00B5 micro sign
  μs: 1e-3, // U+03BC Greek mu
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
}

/** The common form, parsed without the general pattern. */
const SIMPLE = /^(\d{1,9})(ms|s|m|h)$/
const WHOLE = /^[+-]?(?:\d+(?:\.\d*)?(?:ns|us|µs|μs|ms|s|m|h)|\.\d+(?:ns|us|µs|μs|ms|s|m|h))+$/
const PART = /(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)/g

/** Go's durations are int64 nanoseconds: about 292 years. */
const LIMIT_MS = 9_223_372_036_854.775

/** Milliseconds of a Go duration string (fractions kept), or undefined if it is malformed or out of Go's range. */
export function parseDurationMs(text: string): number | undefined {
  if (text === '0' || text === '+0' || text === '-0') return 0
  const simple = SIMPLE.exec(text)
  if (simple) return withinLimit(Number(simple[1]) * (UNIT_MS[simple[2] ?? ''] ?? Number.NaN))
  if (!WHOLE.test(text)) return undefined
  let totalMs = 0
  for (const [, amount, unit] of text.matchAll(PART)) totalMs += Number(amount) * (UNIT_MS[unit ?? ''] ?? Number.NaN)
  const ms = withinLimit(totalMs)
  return ms !== undefined && text.startsWith('-') ? -ms : ms
}

function withinLimit(ms: number): number | undefined {
  return ms <= LIMIT_MS ? ms : undefined
}

/** A Go duration string for `ms`, as Go prints it: `1h30m0s`, `1.5s`, `250ms`, `0s`. */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s'
  const sign = ms < 0 ? '-' : ''
  const value = Math.abs(ms)
  if (value < 1e-3) return `${sign}${trimZeros(value * 1e6)}ns`
  if (value < 1) return `${sign}${trimZeros(value * 1e3)}µs`
  if (value < 1000) return `${sign}${trimZeros(value)}ms`
  const hours = Math.floor(value / 3_600_000)
  const minutes = Math.floor((value % 3_600_000) / 60_000)
  const seconds = trimZeros((value % 60_000) / 1000)
  if (hours > 0) return `${sign}${hours}h${minutes}m${seconds}s`
  return minutes > 0 ? `${sign}${minutes}m${seconds}s` : `${sign}${seconds}s`
}

/** The same without trailing zero units: `1h30m` for `1h30m0s`. */
export function shortDuration(ms: number): string {
  return formatDuration(ms)
    .replace(/([hm])0s$/, '$1')
    .replace(/h0m$/, 'h')
}

function trimZeros(value: number): string {
  return String(Number(value.toFixed(9)))
}
