import type { LogSelection, LogTarget } from '../stream/log-target.ts'
import type { StreamEnvironment } from '../stream/resuming-stream.ts'
import type { LineAddress } from './line-link.ts'

export interface TailOptions {
  readonly target: LogTarget
  readonly selection: LogSelection
  readonly linesMax?: number
  readonly open: StreamEnvironment['open']
  /** A line to show; the tail starts before it. */
  readonly line?: LineAddress
  /** Minimum time between two redraws for new lines. Default: a frame. */
  readonly redrawMs?: number
  /** False to stay at the start. */
  readonly isFollowing: boolean
}
