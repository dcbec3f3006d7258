/** The commit log of the active server: publishes each group to the commit stream, within one term. */
import type { AppendedGroup, CommitLog, GroupMark } from '../../storage/store/commit-log.ts'
import type { StreamMark } from '../../storage/store/stream-mark.ts'
import type { ReplicaOrder } from '../../storage/store/replica-writer.ts'
import type { CommitPosition } from '../../storage/sqlite/rows.ts'
import { outcomeUnknown, standbyError, StoreError } from '../../storage/sqlite/store-error.ts'
import { messageOf } from '../../platform/errors.ts'
import { type CommitMessage, orderOf } from './commit-message.ts'
import { type CommitStream, publishMessage, PublishRefused } from './commit-stream.ts'

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
  /** An order was appended and is not executed yet. */
  isExecuting: boolean
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
    this.#open = { start, ended: new AbortController(), last: start.last, nextRow: start.nextRow, isExecuting: false }
  }

  /** Ends the term. A group that waits for its acknowledgement fails. */
  end(): void {
    this.#open?.ended.abort()
    this.#open = undefined
  }

  async append({ bytes, epoch, hasRows, lengths }: AppendedGroup): Promise<GroupMark> {
    const open = this.#requireOpen()
    const [firstSequence, atMs] = [open.nextRow, this.#wallMs()]
    const used = new Uint8Array(
      bytes,
      0,
      lengths.reduce((sum, length) => sum + length, 0),
    )
    const group = { epoch, firstSequence, atMs, lengths: [...lengths], bytes: used }
    const mark = await this.#publish(open, { kind: 'group', ...group, ...this.#stated(open) })
    if (hasRows) open.nextRow += lengths.length
    return { ...mark, firstSequence, atMs }
  }

  async appendOrder(order: ReplicaOrder): Promise<StreamMark> {
    const open = this.#requireOpen()
    open.isExecuting = true
    return this.#publish(open, { kind: 'order', order: orderOf(order), ...this.#stated(open) })
  }

  executed(sequence: number): void {
    const open = this.#open
    if (!open) return
    open.isExecuting = false
    open.nextRow = sequence + 1
  }

  #requireOpen(): OpenTerm {
    if (!this.#open || this.#open.isExecuting) throw standbyError()
    return this.#open
  }

  #stated({ start }: OpenTerm) {
    return { term: start.term, position: positionOf(this.#position()) }
  }

  async #publish(open: OpenTerm, message: CommitMessage): Promise<StreamMark> {
    const { stream } = open.start
    const slow = setTimeout(() => this.onSlow(), SLOW_MS)
    try {
      open.last = await publishMessage(stream, message, open.last, open.ended.signal)
    } catch (error) {
      const isRefused = error instanceof PublishRefused
      if (isRefused && this.#open === open) this.onRefused()
      throw isRefused ? standbyError() : outcomeUnknown(messageOf(error))
    } finally {
      clearTimeout(slow)
    }
    return { stream: stream.identity, position: open.last }
  }
}

export function positionOf({ sequence, epoch, checksum }: CommitPosition) {
  return { sequence, epoch, checksum: Buffer.from(checksum) }
}
