/**
 * The main thread's side of the writer: orders that were sent and have no result yet.
 *
 * Batches that are queued while the writer is busy form one *group* (`group-message.ts`), which takes one message and one commit. A group
 * also waits for a few turns of the event loop, as long as each turn adds a batch.
 *
 * A queued batch is not durable, but a decision about the next batch must take it into account: the *overlay* has the newest queued
 * value of each path. When a batch fails, all batches queued after it were based on a state that does not exist. So each order has the
 * *generation* in which it was queued. The writer fails all batches of a generation after the first failure. When this thread receives
 * the failure, it clears the overlay, starts the next generation and calls the listeners, synchronously and before any pending promise
 * settles, so that no caller can combine the two states.
 *
 * With a commit log (`commit-log.ts`) a group is appended to it before it is sent to the writer, and all orders wait for the groups before
 * them. The next group is appended while the writer applies the last one. An order of replication is verified by the writer, appended, and
 * executed before anything else is appended.
 */
import { dirname } from 'node:path'
import type { Worker } from 'node:worker_threads'
import { messageOf } from '../../../platform/errors.ts'
import { TransientMap } from '../../../platform/transient-map.ts'
import { type Batch, type BatchScope, checkBatch, isLocal, mayUseReserve, scopeOf } from '../../sqlite/batch.ts'
import type { FileFault } from '../../sqlite/file-guard.ts'
import {
  notOwnError,
  noFailures,
  noSpace,
  StoreError,
  type StoreErrorKind,
  storeErrorOf,
} from '../../sqlite/store-error.ts'
import type { CommitLog, GroupMark } from '../commit-log.ts'
import type { WriterOrder, OrderOutcome, WriterReport, WriterSettings } from '../writer-thread.ts'
import { NotChained, type ReplicaState, type StoreRole } from '../replica.ts'
import type { ReplicaOrder } from '../replica-writer.ts'
import { releaseStoreWorker, startWriter } from '../store-worker-cache.ts'
import type { TreeAnswer, TreeOrder } from '../tree-writer.ts'
import { type EncodedGroup, WriteGroup } from '../group-message.ts'
import {
  failureOf,
  isDone,
  type OrderBody,
  type OrderResult,
  type PendingOrder,
  pendingOf,
  type QueuedWrite,
  type ReplicationOrder,
  resultsOf,
  type QueuedValue,
  QueuedValues,
  SendOrder,
} from './queued-order.ts'

/** Limit of all queued batches, so that a blocked disk does not exhaust the memory. A single batch may be larger. */
const QUEUED_BYTES_MAX = 256 << 20
/** Groups that the commit log has and the writer has not applied yet. */
const GROUPS_AHEAD_MAX = 4
/** Turns of the event loop that a growing group waits for more batches. */
const GROWING_TURNS_MAX = 4
/** Results that are delivered in one turn of the event loop: the callers' continuations take about half a millisecond. */
const RESULTS_PER_TURN = 16

export class WriterQueue {
  readonly #worker: Worker
  readonly #pending = new TransientMap<number, PendingOrder>()
  readonly #overlay = new QueuedValues()
  readonly #listeners = new Set<() => void>()
  /** Called with each durable batch, before its promise settles. */
  onWritten: (batch: Batch, sequence: number) => void = () => undefined
  /** Called after each transaction with its duration, sync included, in milliseconds. */
  onTransaction: (ms: number) => void = () => undefined
  /** Commits since the start. `failed` has those that were refused or failed, by reason. */
  readonly counts: { done: number; readonly failed: Record<StoreErrorKind, number> } = { done: 0, failed: noFailures() }
  /** Called before any result is delivered. */
  onReport: () => void = () => undefined
  /** Called with the newest durable sequence when it has changed. */
  onAppended: (newest: number) => void = () => undefined
  /** In any other role than `own`, only local batches may be queued. */
  role: StoreRole = 'own'
  /** Size of the value at a path after all queued batches. */
  sizeOf: (path: string) => number | undefined = () => undefined
  readonly #directory: string
  /** The current fault of the database files. */
  #fault: FileFault | undefined
  /** Called when the fault has changed; undefined when it has ended. */
  onFault: (fault: FileFault | undefined) => void = () => undefined
  /** The disk is almost full: batches that need space are refused. */
  #isFull = false
  /** Called when the disk becomes full, and when it has space again. */
  onSpace: (isFull: boolean) => void = () => undefined
  /** Sequence of the newest durable row. */
  newest = 0
  #count = 0
  /** Results that were received and not delivered yet. */
  readonly #outcomes: OrderResult[] = []
  /** The group that was not sent to the writer yet. */
  #group: WriteGroup | undefined
  /** Groups that were sent to the writer and have no result yet. */
  #groupsOut = 0
  /** Commits are appended to it first; undefined: they become durable in this database. */
  commitLog: CommitLog | undefined
  /** Groups that wait for the commit log. */
  #appending = 0
  /** Role and epoch of the database after the last order: groups that were queued before it are refused after it. */
  #logged: Pick<ReplicaState, 'role' | 'epoch'> = { role: 'own', epoch: 0 }
  readonly #sends = new SendOrder()
  #isFlushDue = false
  #generation = 0
  #queuedBytes = 0
  /** The failure that ended the last generation. */
  #cause: StoreError | undefined
  #broken: StoreError | undefined
  #closed = false
  /** A restore is in progress; nothing else may be queued. */
  #isRestoring = false

  /** Starts a writer, which opens the database. Rejects with a Fault for the operator. */
  static async start(settings: WriterSettings): Promise<WriterQueue> {
    return new WriterQueue(await startWriter(settings), settings.path)
  }

  private constructor(worker: Worker, path: string) {
    this.#worker = worker
    this.#directory = dirname(path)
    worker.on('message', (report: WriterReport) => this.#receive(report))
    worker.on('error', (error) =>
      this.#break(new StoreError('failed', `the writer of the database failed: ${messageOf(error)}`)),
    )
    worker.on('exit', () => this.#break(new StoreError('closed', 'the store is closed')))
  }

  /** The newest queued value of a path; undefined when nothing is queued for it. */
  queued(path: string): QueuedValue | undefined {
    return this.#overlay.get(path)
  }

  /** Batches whose result was not delivered yet, in order. Some may be durable already. */
  get queuedBatches(): Batch[] {
    const writes = Array.from(this.#pending.values(), ({ write }) => write)
    return writes.flatMap((write) => (write?.generation === this.#generation ? [write.batch] : []))
  }

  /** The current fault of the database files. */
  get fault(): FileFault | undefined {
    return this.#fault
  }

  /** See `Store.onFailure`. Returns a function that removes the listener. */
  onFailure(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Queues a batch synchronously. Throws for an invalid batch, and when it cannot be queued. */
  write(batch: Batch, epoch: number): Promise<OrderResult> {
    const bytes = checkBatch(batch)
    const refusal = this.#refusalOf(batch, bytes, epoch)
    if (refusal) {
      this.counts.failed[refusal.kind]++
      throw refusal
    }
    const id = this.#addToGroup(batch, bytes, epoch)
    this.#queuedBytes += bytes
    this.#overlay.add(batch, id)
    const write = { generation: this.#generation, bytes, batch }
    return new Promise((resolve, reject) => this.#pending.set(id, { resolve, reject, write }))
  }

  /** Undefined for a batch that can be queued. */
  #refusalOf(batch: Batch, bytes: number, epoch: number): StoreError | undefined {
    const down = this.#downError()
    if (down) return down
    if (this.role !== 'own' && !isLocal(batch)) return notOwnError(this.role, epoch)
    if (this.commitLog?.refusal && scopeOf(batch) !== 'local') return this.commitLog.refusal
    if (this.#fault) return new StoreError('displaced', this.#fault.text)
    if (this.#queuedBytes > 0 && this.#queuedBytes + bytes > QUEUED_BYTES_MAX) {
      return new StoreError('busy', `too many bytes are queued for the disk (limit ${QUEUED_BYTES_MAX})`)
    }
    if (!this.#isFull || mayUseReserve(batch, this.sizeOf)) return undefined
    return new StoreError('full', noSpace(this.#directory))
  }

  /** Adds a batch to the group and schedules the group. Returns the ID of the batch. */
  #addToGroup(batch: Batch, bytes: number, epoch: number): number {
    const next = { epoch, generation: this.#generation, scope: this.#scopeOf(batch) }
    const open = this.#group ?? next
    const fits = open.epoch === epoch && open.generation === next.generation
    if (!fits || (this.commitLog && open.scope !== next.scope)) this.#flush()
    const id = ++this.#count
    this.#group ??= new WriteGroup({ ...next, id })
    this.#group.add(batch, bytes)
    if (this.#group.isFull) this.#flush()
    else this.#flushSoon()
    return id
  }

  #scopeOf(batch: Batch): BatchScope {
    if (this.commitLog) return scopeOf(batch)
    return isLocal(batch) ? 'local' : 'replicated'
  }

  /** Sends the group once the writer is idle and the group has stopped growing. */
  #flushSoon(): void {
    const isBusy = this.commitLog ? this.#appending > 0 || this.#groupsOut > GROUPS_AHEAD_MAX : this.#groupsOut > 0
    if (this.#isFlushDue || isBusy || !this.#group) return
    this.#isFlushDue = true
    setImmediate(() => this.#flushGrown(1, GROWING_TURNS_MAX))
  }

  #flushGrown(lengthBefore: number, turnsLeft: number): void {
    const length = this.#group?.length ?? 0
    if (length > lengthBefore && turnsLeft > 0) setImmediate(() => this.#flushGrown(length, turnsLeft - 1))
    else {
      this.#isFlushDue = false
      this.#flush()
    }
  }

  #flush(): void {
    const group = this.#group
    if (!group) return
    this.#group = undefined
    const encoded = group.encode()
    const { commitLog } = this
    if (!commitLog || group.scope === 'local') return this.#sends.run(() => this.#postGroup(encoded))
    this.#appending++
    const hasRows = group.scope === 'replicated'
    this.#sends.run(() => this.#append({ ...encoded, hasRows }, commitLog))
  }

  #postGroup(group: EncodedGroup, mark?: GroupMark): void {
    this.#groupsOut++
    if (mark) for (const pending of pendingOf(this.#pending, group)) pending.isInStream = true
    const order: WriterOrder = { kind: 'write', ...group, ...(mark && { mark }) }
    this.#worker.postMessage(order, [group.bytes])
  }

  /** Never rejects. */
  async #append({ hasRows, ...group }: EncodedGroup & { hasRows: boolean }, commitLog: CommitLog): Promise<void> {
    try {
      // A group that was queued before another one failed is based on a state that does not exist.
      if (group.generation !== this.#generation) return this.#failGroup(group, this.#droppedError())
      const { role, epoch } = this.#logged
      if (hasRows && (role !== 'own' || group.epoch < epoch)) {
        return await this.#failAfterWriter(group, notOwnError(role, epoch))
      }
      const mark = await commitLog.append({ ...group, hasRows })
      this.#postGroup(group, mark)
    } catch (error) {
      await this.#failAfterWriter(group, storeErrorOf(error))
    } finally {
      this.#appending--
      this.#flushSoon()
    }
  }

  /** The listeners return to the durable state, which must include the groups that the writer has not reported yet. Never rejects. */
  async #failAfterWriter(group: EncodedGroup, error: StoreError): Promise<void> {
    await this.#postNow({ kind: 'nothing' }).catch(() => undefined)
    this.#failGroup(group, error)
  }

  #failGroup(group: EncodedGroup, error: StoreError): void {
    const failed = pendingOf(this.#pending, group)
    for (const at of group.lengths.keys()) this.#pending.delete(group.id + at)
    for (const { write } of failed) if (write) this.#finishWrite(group.id, write, error)
    for (const { reject } of failed) reject(error)
  }

  /** Queues any other order. */
  async order(order: OrderBody): Promise<OrderResult> {
    this.#refuseWhenDown()
    return this.#post(order)
  }

  /** Sends a request about the Merkle tree. */
  async requestTree(order: TreeOrder): Promise<TreeAnswer> {
    const outcome = await this.order({ kind: 'tree', order })
    if ('tree' in outcome) return outcome.tree
    throw new StoreError('failed', 'the writer returned no result')
  }

  /** Queues an order of replication, or a part of the commit stream. `changed`: see `PendingOrder`. */
  async replicate(order: ReplicationOrder, changed: (state: ReplicaState) => void): Promise<ReplicaState> {
    this.#refuseWhenDown()
    const { commitLog } = this
    const onState = (done: OrderResult) => {
      if (!('state' in done)) return
      this.#logged = done.state
      changed(done.state)
    }
    const outcome =
      commitLog && order.kind === 'replica'
        ? await this.#replicateLogged(order.order, commitLog, onState)
        : await this.#post(order, onState)
    if ('state' in outcome) return outcome.state
    if ('notChained' in outcome) throw new NotChained(outcome.notChained)
    throw new StoreError('failed', 'the writer returned no result')
  }

  /** Verifies the order, appends it to the commit log and executes it, after everything that was queued before. */
  async #replicateLogged(
    order: ReplicaOrder,
    commitLog: CommitLog,
    changed: (outcome: OrderResult) => void,
  ): Promise<OrderResult> {
    if (commitLog.refusal) throw commitLog.refusal
    this.#flush()
    return new Promise((resolve, reject) => {
      this.#appending++
      const run = async () => {
        await this.#appendOrder(order, commitLog, changed).then(resolve, reject)
        this.#appending--
        this.#flushSoon()
      }
      this.#sends.run(run)
    })
  }

  async #appendOrder(
    order: ReplicaOrder,
    commitLog: CommitLog,
    changed: (outcome: OrderResult) => void,
  ): Promise<OrderResult> {
    const checked = await this.#postNow({ kind: 'check', order })
    if (!('done' in checked)) return checked
    const mark = await commitLog.appendOrder(order)
    const outcome = await this.#postNow({ kind: 'replica', order, mark }, changed).catch((error: unknown) => {
      // The members have it: this server must not continue without it.
      this.#startGeneration(storeErrorOf(error))
      throw error
    })
    if ('state' in outcome) {
      this.#logged = outcome.state
      commitLog.executed(outcome.state.position.sequence)
    } else this.#startGeneration(new StoreError('failed', 'a change of the commit stream was not executed'))
    return outcome
  }

  /** Queues a restore. Commits are refused until it has a result. On success calls `changed`, then the listeners, whose state is obsolete. */
  async orderRestore(
    order: Extract<OrderBody, { kind: 'restore' | 'replica' }>,
    changed: () => void,
  ): Promise<OrderResult> {
    this.#refuseWhenDown()
    this.#isRestoring = true
    try {
      const { commitLog } = this
      const outcome =
        order.kind === 'replica' && commitLog
          ? await this.#replicateLogged(order.order, commitLog, () => undefined)
          : await this.#post(order)
      if ('done' in outcome || 'state' in outcome) {
        changed()
        this.#startGeneration(new StoreError('failed', 'a snapshot was restored'))
      }
      return outcome
    } finally {
      this.#isRestoring = false
    }
  }

  /**
   * Waits for queued orders, then releases the worker. `closeReaders` closes the other connections: the last connection checkpoints the
   * write-ahead log, and that must be the writer's. A truncated log must not be checkpointed: then the writer closes first, because
   * read-only connections do not checkpoint.
   */
  async close(closeReaders: () => void): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    if (!this.#broken) await this.#post({ kind: 'nothing' }).catch(() => undefined)
    const isTruncated = this.#fault?.isTruncated ?? false
    if (!isTruncated) closeReaders()
    const isClosed = !this.#broken && (await this.#post({ kind: 'close' }).then(isDone, () => false))
    if (isTruncated) closeReaders()
    if (!isClosed) await this.#worker.terminate()
    else await releaseStoreWorker(this.#worker)
  }

  #refuseWhenDown(): void {
    const error = this.#downError()
    if (error) throw error
  }

  #downError(): StoreError | undefined {
    if (this.#broken) return this.#broken
    if (this.#closed) return new StoreError('closed', 'the store is closed')
    return this.#isRestoring ? new StoreError('busy', 'a snapshot is being restored') : undefined
  }

  /** Sends an order after all queued batches. */
  #post(order: OrderBody, changed?: PendingOrder['changed']): Promise<OrderResult> {
    this.#flush()
    return this.#postWith(order, changed, (send) => this.#sends.run(send))
  }

  /** Sends an order at once, while others wait for the commit log. */
  #postNow(order: OrderBody, changed?: PendingOrder['changed']): Promise<OrderResult> {
    return this.#postWith(order, changed, (send) => send())
  }

  #postWith(
    order: OrderBody,
    changed: PendingOrder['changed'],
    deliver: (send: () => void) => void,
  ): Promise<OrderResult> {
    const id = ++this.#count
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject, changed })
      deliver(() => this.#worker.postMessage({ ...order, id }, []))
    })
  }

  #receive(report: WriterReport): void {
    if (report.kind === 'space' && report.isFull !== this.#isFull) {
      this.#isFull = report.isFull
      this.onSpace(report.isFull)
    }
    if (report.kind === 'files') {
      this.#fault = report.fault
      this.onFault(report.fault)
    }
    if (report.kind !== 'done') return
    this.#groupsOut = Math.max(0, this.#groupsOut - report.groups)
    if (report.groups > 0) this.onTransaction(report.writeMs)
    this.#flushSoon()
    const isFirst = this.#outcomes.length === 0
    this.#outcomes.push(...resultsOf(report.results))
    this.#notifyAppended(report.results)
    if (isFirst) this.#deliver(RESULTS_PER_TURN)
  }

  /** Called before results are delivered, so that log shipping does not wait for the callers. */
  #notifyAppended(results: readonly OrderOutcome[]): void {
    const before = this.newest
    for (const result of results) {
      if ('sequences' in result) this.newest = Math.max(this.newest, result.sequences.at(-1) ?? 0)
      else if ('state' in result) this.newest = result.state.position.sequence
    }
    if (this.newest <= before) return
    this.onReport()
    this.onAppended(this.newest)
  }

  /** Delivers results in order, a few per turn: each caller continues at once, and other events must be served in between. */
  #deliver(countMax: number): void {
    this.onReport()
    for (const outcome of this.#outcomes.splice(0, countMax)) {
      const pending = this.#pending.get(outcome.id)
      if (!pending) continue
      this.#pending.delete(outcome.id)
      const failure = failureOf(outcome, this.#directory, pending)
      if (pending.write && 'sequence' in outcome) this.onWritten(pending.write.batch, outcome.sequence)
      if (pending.write) this.#finishWrite(outcome.id, pending.write, failure)
      if (failure === undefined) pending.changed?.(outcome)
      if (failure === undefined) pending.resolve(outcome)
      else pending.reject(failure === 'dropped' ? this.#droppedError() : failure)
    }
    if (this.#outcomes.length > 0) setImmediate(() => this.#deliver(RESULTS_PER_TURN))
  }

  #finishWrite(
    id: number,
    { generation, bytes, batch }: QueuedWrite,
    failure: StoreError | 'dropped' | undefined,
  ): void {
    this.#queuedBytes -= bytes
    if (failure === undefined) this.counts.done++
    else this.counts.failed[failure === 'dropped' ? this.#droppedError().kind : failure.kind]++
    if (generation !== this.#generation) return
    if (failure !== undefined) return this.#startGeneration(failure === 'dropped' ? this.#droppedError() : failure)
    this.#overlay.remove(batch, id)
  }

  #startGeneration(cause: StoreError): void {
    this.#cause = cause
    this.#generation++
    this.#overlay.clear()
    for (const listener of this.#listeners) listener()
  }

  #droppedError(): StoreError {
    const { kind, message } = this.#cause ?? { kind: 'failed' as const, message: 'unknown' }
    return new StoreError(kind, `an earlier commit failed: ${message}`)
  }

  #break(error: StoreError): void {
    if (this.#broken) return
    // Results that the writer sent before it ended are valid.
    this.#deliver(Number.MAX_SAFE_INTEGER)
    this.#broken = error
    const lost = [...this.#pending.values()]
    this.counts.failed[error.kind] += lost.filter(({ write }) => write).length
    this.#pending.clear()
    this.#queuedBytes = 0
    if (lost.some(({ write }) => write)) this.#startGeneration(error)
    for (const { reject } of lost) reject(error)
  }
}
