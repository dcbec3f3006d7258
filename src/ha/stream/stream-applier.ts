/**
 * Applies the commit stream to the database of a member. Messages that have arrived together become one transaction.
 *
 * The active server states its position with each group and at the start of its term, so a member whose history differs detects it
 * (`HistoryDiffers`) instead of applying groups to other entries. It then copies the entries of another member.
 */
import type { LoggedGroup } from '../../storage/store/commit-log.ts'
import { MalformedBatch } from '../../storage/sqlite/batch.ts'
import type { CommitPosition } from '../../storage/sqlite/rows.ts'
import { NotChained } from '../../storage/store/replica.ts'
import type { SqliteStore } from '../../storage/store/store.ts'
import type { StoredMessage } from './arrived-messages.ts'
import { type CommitMessage, MessageAssembler, type OrderMessage, samePosition } from './commit-message.ts'

const GROUPS_MAX = 256
const BYTES_MAX = 8 << 20

export type AppliedStore = Pick<SqliteStore, 'base' | 'holds' | 'position'> & {
  readonly member: Pick<SqliteStore['member'], 'applyLogged' | 'applyLoggedOrder'>
}

/** The database is not a prefix of the history of the stream, or the stream continues after a restore. */
export class HistoryDiffers extends Error {
  override readonly name = 'HistoryDiffers'
}

export class StreamApplier {
  readonly #store: AppliedStore
  readonly #stream: string
  readonly #assembler = new MessageAssembler()
  #groups: LoggedGroup[] = []
  #bytes = 0
  /** Position that the active server had before the last group. */
  #stated: CommitPosition | undefined
  /** Sequence of the newest message that was received. */
  received = 0

  constructor(store: AppliedStore, stream: string) {
    this.#store = store
    this.#stream = stream
  }

  /** Takes the next message, and applies it unless more messages are about to arrive. Rejects with HistoryDiffers and errors of a commit. */
  async add({ payload, pending, sequence }: StoredMessage): Promise<void> {
    const message = this.#assembler.add(payload)
    this.received = sequence
    if (message) await this.#take(message, sequence)
    const isFull = this.#groups.length >= GROUPS_MAX || this.#bytes >= BYTES_MAX
    if (isFull || (pending === 0 && !this.#assembler.isWaiting)) await this.flush()
  }

  async #take(message: CommitMessage, position: number): Promise<void> {
    const { kind } = message
    if (kind === 'group') {
      const { atMs, bytes, epoch, firstSequence, lengths } = message
      this.#push({ bytes: bufferOf(bytes), lengths, epoch, mark: { ...this.#at(position), firstSequence, atMs } })
      this.#bytes += bytes.length
      this.#stated = message.position
      return
    }
    await this.flush()
    const here = this.#store.position()
    if (!samePosition(here, message.position)) {
      throw new HistoryDiffers(
        `this server is at row ${here.sequence}, the active server was at row ${message.position.sequence}`,
      )
    }
    if (message.kind === 'order') return this.#execute(message, position)
    this.#push({ ...NOTHING, mark: { ...this.#at(position), firstSequence: here.sequence + 1, atMs: 0 } })
  }

  async #execute({ order }: OrderMessage, position: number): Promise<void> {
    try {
      await this.#store.member.applyLoggedOrder(order, this.#at(position))
    } catch (error) {
      // The active server has executed it.
      if (error instanceof NotChained || error instanceof MalformedBatch) throw new HistoryDiffers(error.message)
      throw error
    }
  }

  #push(group: LoggedGroup): void {
    this.#groups.push(group)
  }

  #at(position: number) {
    return { stream: this.#stream, position }
  }

  /** Applies what was received. */
  async flush(): Promise<void> {
    const groups = this.#groups
    const stated = this.#stated
    if (groups.length === 0) return
    this.#groups = []
    this.#bytes = 0
    this.#stated = undefined
    try {
      await this.#store.member.applyLogged(groups)
    } catch (error) {
      if (error instanceof NotChained) throw new HistoryDiffers(error.message)
      throw error
    }
    const isRetained = stated && stated.sequence >= this.#store.base().sequence
    if (isRetained && !this.#store.holds(stated))
      throw new HistoryDiffers(`row ${stated.sequence} has another checksum`)
  }
}

const NOTHING = { bytes: new ArrayBuffer(0), lengths: [], epoch: 0 }

/** A copy, because MessagePack returns views of one buffer. */
function bufferOf(bytes: Uint8Array): ArrayBuffer {
  const copy = new ArrayBuffer(bytes.length)
  new Uint8Array(copy).set(bytes)
  return copy
}
