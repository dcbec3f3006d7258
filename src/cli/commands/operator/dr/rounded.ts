/** Durations of the replication status, rounded for people. */
import { shortDuration } from '../../../../platform/duration.ts'

const SECOND_MS = 1000
const HOUR_MS = 3_600_000
const MINUTE_MS = 60_000

/** Whole seconds, and from an hour on whole minutes: `2s`, `1m30s`, `5h12m`. */
export function roundedDuration(ms: number): string {
  const unitMs = Math.abs(ms) >= HOUR_MS ? MINUTE_MS : SECOND_MS
  return shortDuration(Math.round(ms / unitMs) * unitMs)
}

/** Milliseconds below a second: `35ms`, `-12s`. */
export function roundedSkew(ms: number): string {
  return Math.abs(ms) < SECOND_MS ? shortDuration(Math.round(ms)) : roundedDuration(ms)
}
