/** How much of the log is kept: what a secondary that was away needs, so that it is not copied whole again. */

export interface LogLimits {
  /** Of all rows together; older ones go when it is exceeded. */
  readonly bytesMax: number
  /** Older rows go. */
  readonly ageMaxMs: number
  /** What the slowest secondary has not acknowledged stays beyond both, up to this many bytes. */
  readonly behindBytesMax: number
}

export const LOG_LIMITS: LogLimits = {
  bytesMax: 48 << 20,
  ageMaxMs: 24 * 3600 * 1000,
  behindBytesMax: 1 << 30,
}

/** Of a row beside its batch: what it takes in the file, about. */
export const ROW_BYTES = 64

export interface LogEnd {
  /** Of the newest row. */
  readonly sequence: number
  /** Bytes of all rows ever, up to the newest. */
  readonly total: number
  /** What the slowest secondary has acknowledged; undefined when there is none. */
  readonly acknowledged: number | undefined
}

/** True for a row that nobody needs any more. The newest one always stays: the next is chained to it. */
export function isPast(
  row: { readonly sequence: number; readonly atMs: number; readonly total: number },
  end: LogEnd,
  limits: LogLimits,
  nowMs: number,
): boolean {
  if (row.sequence >= end.sequence) return false
  const bytes = end.total - row.total
  const isAwaited = end.acknowledged !== undefined && row.sequence > end.acknowledged
  if (isAwaited && bytes <= limits.behindBytesMax) return false
  return bytes > limits.bytesMax || row.atMs < nowMs - limits.ageMaxMs
}
