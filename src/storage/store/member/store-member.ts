/** The store of a member of an HA cluster: joins the commit stream, applies it, and copies the entries of another member. */
import { hash } from 'node:crypto'
import type { DatabaseSync } from 'node:sqlite'
import { Fault } from '../../../platform/errors.ts'
import { REPLICATION_PREFIX } from '../../sqlite/batch.ts'
import type { EntryReader } from '../../sqlite/entry-reader.ts'
import { type CommitPosition, epochIn, factIn } from '../../sqlite/rows.ts'
import type { CommitLog, LoggedGroup } from '../commit-log.ts'
import type { LogReader } from '../log-reader.ts'
import type { WriterQueue } from '../queue/writer-queue.ts'
import type { MemberCopyOrder, ReplicaOrder } from '../replica-writer.ts'
import {
  isCopyingIn,
  isJoiningIn,
  type ReplicaEntry,
  type ReplicaState,
  roleIn,
  type StoreMemberState,
} from '../replica.ts'
import { type AppliedMark, type StreamMark, streamMarkIn } from '../stream-mark.ts'

/** What the store shares with its member. */
interface StoreParts {
  readonly reader: DatabaseSync
  readonly entries: EntryReader
  readonly log: LogReader
  readonly queue: WriterQueue
  /** Reads in the store's snapshot. */
  readonly read: <T>(read: () => T) => T
  /** An order was executed. */
  readonly changed: (order: ReplicaOrder | MemberCopyOrder, state: ReplicaState) => void
  /** Groups of the commit stream were applied. */
  readonly applied: (state: ReplicaState, groups: readonly LoggedGroup[]) => void
}

export class StoreMember {
  readonly #store: StoreParts
  #applying = 0
  /** True while the entries are copied from another member. Set by the store. */
  isJoining: boolean
  /** Called before groups of the commit stream are applied. The result is called in the turn in which reads see them, or after a failure. */
  onApplying: ((groups: readonly LoggedGroup[]) => (isDone: boolean) => void) | undefined

  constructor(store: StoreParts) {
    this.#store = store
    this.isJoining = isJoiningIn(store.reader)
  }

  /** From now on commits and orders of replication are appended to the log before they are applied here. Must be called before the first commit. */
  joinCommitLog(log: CommitLog): void {
    this.#store.queue.commitLog = log
  }

  /** The last applied group of the commit stream; undefined for a store that has never had one. */
  get streamMark(): AppliedMark | undefined {
    return this.#store.read(() => streamMarkIn(this.#store.reader))
  }

  /**
   * Applies groups of the commit stream, in order, in one transaction; those that the store has are skipped. Rejects with NotChained, and
   * then nothing was written, when a group does not follow the newest row.
   */
  async applyLogged(groups: readonly LoggedGroup[]): Promise<CommitPosition> {
    const { applied, queue } = this.#store
    const finish = this.onApplying?.(groups)
    this.#applying++
    try {
      const state = await queue.replicate({ kind: 'logged', groups }, (done) => {
        queue.role = done.role
        applied(done, groups)
        finish?.(true)
      })
      return state.position
    } catch (error) {
      finish?.(false)
      throw error
    } finally {
      this.#applying--
    }
  }

  /** Groups are being applied: the database may have them, and the cache of the store the state before. */
  get isApplying(): boolean {
    return this.#applying > 0
  }

  /** Executes an order of the commit stream, unless the store has it. Rejects with NotChained if the entries here do not allow it. */
  async applyLoggedOrder(order: ReplicaOrder, mark: StreamMark): Promise<CommitPosition> {
    const { changed, queue } = this.#store
    const state = await queue.replicate({ kind: 'logged order', order, mark }, (done) => {
      queue.role = done.role
      changed(order, done)
    })
    return state.position
  }

  /** What another member takes over before it copies entries from this one. Undefined unless this store has joined the commit stream. */
  get state(): StoreMemberState | undefined {
    const { log, read, reader } = this.#store
    return read(() => {
      const mark = streamMarkIn(reader)
      if (!mark || isJoiningIn(reader)) return undefined
      const clusterId = String(factIn(reader, 'cluster'))
      return { position: log.position(), mark, clusterId, ...this.#roleState() }
    })
  }

  /** Two stores with the same entries have the same digest if they also have the same role and state of replication. */
  get roleDigest(): string {
    const { shared, ...role } = this.#store.read(() => this.#roleState())
    const texts = shared.map(({ path, value }) => [path, Buffer.from(value).toString('base64')])
    return hash('sha256', JSON.stringify([role.role, role.epoch, role.isCopying, texts]))
  }

  #roleState(): Pick<StoreMemberState, 'role' | 'epoch' | 'isCopying' | 'shared'> {
    const { entries, reader } = this.#store
    const shared = entries.paths(REPLICATION_PREFIX, {}).flatMap((path) => {
      const entry = entries.get(path)
      if (entry === 'damaged') throw new Fault(`the entry ${path} is damaged`)
      return entry ? [{ path, value: entry.value }] : []
    })
    return { role: roleIn(reader), epoch: epochIn(reader), isCopying: isCopyingIn(reader), shared }
  }

  /**
   * Starts or restarts a copy from another member. Empties the log, which continues after the member's position; role, epoch and the shared
   * state become those of the member. The entries stay.
   */
  async beginCopy(from: StoreMemberState): Promise<void> {
    await this.#copy({ do: 'begin member copy', from })
  }

  async copyEntries(puts: readonly ReplicaEntry[], deletes: readonly string[]): Promise<void> {
    await this.#copy({ do: 'member copy', puts, deletes })
  }

  async finishCopy(): Promise<void> {
    await this.#copy({ do: 'finish member copy' })
  }

  async #copy(order: MemberCopyOrder): Promise<void> {
    const { changed, queue } = this.#store
    await queue.replicate({ kind: 'member copy', order }, (state) => {
      queue.role = state.role
      changed(order, state)
    })
  }
}
