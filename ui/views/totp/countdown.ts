/** Time of one-time codes. A code is valid for a period; periods start at multiples of it since 1970. */

export interface CodePeriod {
  /** Number of the period. */
  readonly step: number
  readonly secondsLeft: number
  /** Part of the period that is left, from 1 to 0. */
  readonly share: number
}

export function codePeriod(nowMs: number, periodSeconds: number): CodePeriod {
  const periodMs = periodSeconds * 1000
  const step = Math.floor(nowMs / periodMs)
  const leftMs = (step + 1) * periodMs - nowMs
  return { step, secondsLeft: Math.ceil(leftMs / 1000), share: leftMs / periodMs }
}

/** Clock of the server minus clock of this machine, from the `Date` of a response; it has whole seconds. */
export function serverOffsetMs(date: string | null, nowMs: number): number {
  const atMs = Date.parse(date ?? '')
  if (!Number.isFinite(atMs)) return 0
  const offsetMs = atMs - nowMs
  // Less than the precision of the header and the time of the request.
  return Math.abs(offsetMs) < 1500 ? 0 : offsetMs
}

/** `123 456`. */
export function groupedCode(code: string): string {
  const half = Math.ceil(code.length / 2)
  return `${code.slice(0, half)} ${code.slice(half)}`
}
