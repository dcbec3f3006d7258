/** The commit log of the active server: publishes each group to the commit stream, within one term. */
import { type CommitLog, type GroupMark } from '../../storage/store/commit-log.ts'
import type { EncodedGroup } from '../../storage/store/write-group.ts'
import type { CommitPosition } from '../../storage/sqlite/rows.ts'
import { outcomeUnknown, standbyError, StoreError } from '../../storage/sqlite/store-error.ts'
import { messageOf } from '../../platform/errors.ts'
import { encodeMessage, type GroupMessage } from './commit-message.ts'
import { type CommitStream, PublishRefused } from './commit-stream.ts'

/** Time after which a commit that waits for NATS is logged. */
const SLOW_MS = 2000

export interface TermStart {
  readonly term: number
  readonly stream: Pick<CommitStream, 'identity' | 'messageBytesMax' | 'publish'>
  /** Sequence of the newest message of the stream. */
  readonly last: number
  /** Sequence of the next row. */
  readonly nextRow: number
}

interface OpenTerm {
  readonly start: TermStart
  readonly ended: AbortController
  last: number
  nextRow: number
}

export class StreamCommitLog implements CommitLog {
  readonly #position: () => CommitPosition
  readonly #wallMs: () => number
  /** Called when the stream refused a group: another server is active. */
  onRefused: () => void = () => undefined
  /** Called when NATS takes long to acknowledge a group. */
  onSlow: () => void = () => undefined
  #open: OpenTerm | undefined

  /** `position`: the newest row of the database. */
  constructor(position: () => CommitPosition, wallMs: () => number) {
    this.#position = position
    this.#wallMs = wallMs
  }

  get refusal(): StoreError | undefined {
    return this.#open ? undefined : standbyError()
  }

  /** Sequence of the newest message that this server has published in its term; 0 outside a term. */
  get last(): number {
    return this.#open?.last ?? 0
  }

  begin(start: TermStart): void {
    this.#open = { start, ended: new AbortController(), last: start.last, nextRow: start.nextRow }
  }

  /** Ends the term. A group that waits for its acknowledgement fails. */
  end(): void {
    this.#open?.ended.abort()
    this.#open = undefined
  }

  async append({ bytes, lengths, epoch }: Pick<EncodedGroup, 'bytes' | 'lengths' | 'epoch'>): Promise<GroupMark> {
    const open = this.#open
    if (!open) throw standbyError()
    const { stream, term } = open.start
    const [firstSequence, atMs] = [open.nextRow, this.#wallMs()]
    const used = new Uint8Array(
      bytes,
      0,
      lengths.reduce((sum, length) => sum + length, 0),
    )
    const position = positionOf(this.#position())
    const message: GroupMessage = {
      kind: 'group',
      term,
      epoch,
      firstSequence,
      atMs,
      lengths: [...lengths],
      bytes: used,
      position,
    }
    const slow = setTimeout(() => this.onSlow(), SLOW_MS)
    try {
      for (const part of encodeMessage(message, stream.messageBytesMax)) {
        open.last = await stream.publish(part, open.last, open.ended.signal)
      }
    } catch (error) {
      const isRefused = error instanceof PublishRefused
      if (isRefused && this.#open === open) this.onRefused()
      throw isRefused ? standbyError() : outcomeUnknown(messageOf(error))
    } finally {
      clearTimeout(slow)
    }
    open.nextRow += lengths.length
    return { stream: stream.identity, position: open.last, firstSequence, atMs }
  }
}

export function positionOf({ sequence, epoch, checksum }: CommitPosition) {
  return { sequence, epoch, checksum: Buffer.from(checksum) }
}
