/**
 * This thread's side of the writer: what has been ordered and not been answered yet.
 *
 * What is to be written while the writer is busy waits here and goes to it as one *group* (`write-group.ts`), so that one
 * commit and one message serve all of it. A group also waits, for a few turns of the event loop at most, as long as each
 * turn adds to it.
 *
 * A batch that is queued is not durable, and whoever decides about the next one must know it all the same: the *overlay*
 * holds the newest queued word on each path. Should a batch fail, everything queued behind it was decided upon a state
 * that did not come to be. So each order carries the *generation* in which it was made. The writer that fails one refuses
 * all others of its generation; when this thread hears of it, it drops the overlay, begins the next generation and tells
 * the listeners, all in one go and before anybody who waits is told, so that nobody can mix the two.
 */
import { dirname } from 'node:path'
import type { Worker } from 'node:worker_threads'
import { Fault, messageOf } from '../../platform/errors.ts'
import { PassingMap } from '../../platform/passing.ts'
import { type Batch, checkBatch, isLocal } from '../sqlite/batch.ts'
import type { Order, Outcome, Report, WriterSettings } from './database-writer.ts'
import type { ReplicaState } from './replica-facts.ts'
import type { ReplicaOrder } from './replica-writer.ts'
import { NotChained, type StoreRole } from './replica.ts'
import { isSparing } from '../sqlite/reserve.ts'
import type { FileFault } from '../sqlite/file-guard.ts'
import { DISPLACED, fencedError, noSpace, replicaError, StoreError } from '../sqlite/store-error.ts'
import type { TreeAnswer, TreeOrder } from './tree-writer.ts'
import { WriteGroup } from './write-group.ts'
import { returnStoreThread, takeStoreThread } from './store-threads.ts'

/** What is queued for a path: its value, or that it is removed. */
export interface Queued {
  readonly value: Uint8Array | undefined
}

type OrderBody = Order extends infer O ? (O extends { readonly id: number } ? Omit<O, 'id'> : never) : never

interface Waiting {
  readonly resolve: (outcome: Settled) => void
  readonly reject: (error: Error) => void
  readonly write?: QueuedWrite
  /** Called when it has been done, before any read can see what was before. */
  readonly changed?: ((outcome: Settled) => void) | undefined
}

interface QueuedWrite {
  readonly generation: number
  readonly bytes: number
  readonly batch: Batch
}

const FULL = 13
/** Of batches that are queued: a disk that stands still must not cost all memory. One alone may be larger. */
const QUEUED_BYTES_MAX = 256 << 20

/** Of one group; a single batch may be larger. */
const GROUP_MAX = 256
const GROUP_BYTES_MAX = 4 << 20
/** Turns that a group waits for others while it grows. */
const GROWING_TURNS_MAX = 4

/** Answers of one turn of the event loop: about half a millisecond of what those who are answered do next. */
const ANSWERED_AT_ONCE = 16

/** What became of one order. */
type Settled = Exclude<Outcome, { readonly sequences: unknown }> | { readonly id: number; readonly sequence: number }

export class WriterQueue {
  readonly #worker: Worker
  readonly #waiting = new PassingMap<number, Waiting>()
  readonly #overlay = new PassingMap<string, Queued & { readonly id: number }>()
  readonly #listeners = new Set<() => void>()
  /** Told of each batch that has become durable, before its author is. */
  onWritten: (batch: Batch, sequence: number) => void = () => undefined
  /** Told of each transaction that was attempted, and what it took with its sync, in milliseconds. */
  onTransaction: (ms: number) => void = () => undefined
  /** Commits since the start: those that became durable, and those that were refused or lost for whatever reason. */
  readonly counts = { done: 0, failed: 0 }
  /** Called before anybody is told of anything. */
  onReport: () => void = () => undefined
  /** Told of the newest row of the log when there is a newer one, and it is durable. */
  onAppended: (newest: number) => void = () => undefined
  /** What may be queued: batches of this machine's own only, but for `own`. */
  role: StoreRole = 'own'
  /** Bytes of what will be at a path once all that is queued is durable. */
  sizeOf: (path: string) => number | undefined = () => undefined
  readonly #directory: string
  /** What is wrong with the files of the database. */
  #fault: FileFault | undefined
  /** Told when something else is wrong with them than before, or nothing any more. */
  onFault: (fault: FileFault | undefined) => void = () => undefined
  /** There is hardly any space left on the disk: what needs some is refused before it is queued. */
  #isFull = false
  /** Called when the disk becomes full, and when it has space again. */
  onSpace: (isFull: boolean) => void = () => undefined
  /** Of the log, durable. */
  newest = 0
  #count = 0
  /** What the writer has said and nobody was told yet. */
  readonly #outcomes: Settled[] = []
  /** What has not gone to the writer yet. */
  #group: WriteGroup | undefined
  /** Groups that the writer has and has not answered. */
  #groupsOut = 0
  #isFlushDue = false
  #generation = 0
  #queuedBytes = 0
  /** What ended the newest generation that failed. */
  #cause: StoreError | undefined
  #broken: StoreError | undefined
  #closed = false
  /** Something is under way that nothing may be queued behind. */
  #isAlone = false

  /** The writer's thread opens the database. Rejects with a Fault for the operator. */
  static async start(settings: WriterSettings): Promise<WriterQueue> {
    const worker = takeStoreThread()
    await new Promise<void>((resolve, reject) => {
      worker.once('message', () => resolve())
      worker.once('error', (error) => reject(new Fault(messageOf(error), { cause: error })))
      worker.once('exit', () => reject(new Fault(`the thread that writes ${settings.path} has ended`)))
      worker.postMessage(settings, [])
    })
    return new WriterQueue(worker, settings.path)
  }

  private constructor(worker: Worker, path: string) {
    this.#worker = worker
    this.#directory = dirname(path)
    worker.on('message', (report: Report) => this.#take(report))
    worker.on('error', (error) => this.#break(new StoreError('failed', `the writer ended: ${messageOf(error)}`)))
    worker.on('exit', () => this.#break(new StoreError('closed', 'the store is closed')))
  }

  /** The newest queued word on a path; undefined when nothing is queued for it. */
  queued(path: string): Queued | undefined {
    return this.#overlay.get(path)
  }

  /** Batches that are queued, or durable and not answered yet, in order. */
  get queuedBatches(): Batch[] {
    const writes = Array.from(this.#waiting.values(), ({ write }) => write)
    return writes.flatMap((write) => (write?.generation === this.#generation ? [write.batch] : []))
  }

  /** What is wrong with the files of the database, as it was seen last. */
  get fault(): FileFault | undefined {
    return this.#fault
  }

  /** Calls back whenever something failed, see `Store.onFailure`. Returns what ends that. */
  onFailure(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Queues a batch before it returns. Throws what is wrong with the batch, or that nothing can be queued now. */
  write(batch: Batch, epoch: number): Promise<Settled> {
    const bytes = checkBatch(batch)
    this.#refuseWhenDown()
    if (this.role !== 'own' && !isLocal(batch)) throw this.role === 'replica' ? replicaError() : fencedError(epoch)
    if (this.#fault) throw new StoreError('displaced', this.#fault.text)
    if (this.#queuedBytes > 0 && this.#queuedBytes + bytes > QUEUED_BYTES_MAX) {
      throw new StoreError('busy', 'too much is waiting for the disk')
    }
    if (this.#isFull && !isSparing(batch, this.sizeOf)) throw this.#full()
    const id = this.#enter(batch, bytes, epoch)
    this.#queuedBytes += bytes
    for (const { path, value } of batch.puts) this.#overlay.set(path, { value, id })
    for (const path of batch.deletes) this.#overlay.set(path, { value: undefined, id })
    const write = { generation: this.#generation, bytes, batch }
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject, write }))
  }

  /** Adds it to the group that waits, and sees to it that the group goes. Returns its ID. */
  #enter(batch: Batch, bytes: number, epoch: number): number {
    const { epoch: before, generation } = this.#group ?? { epoch, generation: this.#generation }
    if (before !== epoch || generation !== this.#generation) this.#flush()
    const id = ++this.#count
    this.#group ??= new WriteGroup(id, epoch, this.#generation)
    this.#group.add(batch, bytes)
    if (this.#group.length >= GROUP_MAX || this.#group.bytes >= GROUP_BYTES_MAX) this.#flush()
    else this.#flushSoon()
    return id
  }

  /** Once the writer is free, and the turns pass without anything new. */
  #flushSoon(): void {
    if (this.#isFlushDue || this.#groupsOut > 0 || !this.#group) return
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
    this.#groupsOut++
    const encoded = group.encode()
    const order: Order = { kind: 'write', ...encoded }
    this.#worker.postMessage(order, [encoded.bytes])
  }

  /** Queues anything else. */
  async order(order: OrderBody): Promise<Settled> {
    this.#refuseWhenDown()
    return this.#post(order)
  }

  /** Asks about the tree of hashes, or changes it. */
  async askTree(order: TreeOrder): Promise<TreeAnswer> {
    const outcome = await this.order({ kind: 'tree', order })
    if ('tree' in outcome) return outcome.tree
    throw new StoreError('failed', 'the writer gave no result')
  }

  /** Queues what replication does. `changed`: see `Waiting`. */
  async replicate(order: ReplicaOrder, changed: (state: ReplicaState) => void): Promise<ReplicaState> {
    this.#refuseWhenDown()
    const outcome = await this.#post({ kind: 'replica', order }, (done) => {
      if ('state' in done) changed(done.state)
    })
    if ('state' in outcome) return outcome.state
    if ('notChained' in outcome) throw new NotChained(outcome.notChained)
    throw new StoreError('failed', 'the writer gave no result')
  }

  /**
   * Queues what changes everything: commits are refused until it is answered. When it has been done the listeners are
   * called, as what they remember is of another state; before that, `changed`.
   */
  async orderAlone(order: OrderBody, changed: () => void): Promise<Settled> {
    this.#refuseWhenDown()
    this.#isAlone = true
    try {
      const outcome = await this.#post(order)
      if ('done' in outcome) {
        changed()
        this.#beginGeneration(new StoreError('failed', 'another state has taken the place of this one'))
      }
      return outcome
    } finally {
      this.#isAlone = false
    }
  }

  /**
   * Waits for what is queued, then ends the thread. Other connections are closed by `before`: whoever is the last one to
   * leave puts the write-ahead log in its place, and it should be the one who may write. A log that was cut must not be put
   * in its place: then the writer leaves first, and the others cannot.
   */
  async close(before: () => void): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    if (!this.#broken) await this.#post({ kind: 'nothing' }).catch(() => undefined)
    const isCut = this.#fault?.isCut ?? false
    if (!isCut) before()
    const isClosed = !this.#broken && (await this.#post({ kind: 'close' }).then(isDone, () => false))
    if (isCut) before()
    if (!isClosed) await this.#worker.terminate()
    else await returnStoreThread(this.#worker)
  }

  #refuseWhenDown(): void {
    if (this.#broken) throw this.#broken
    if (this.#closed) throw new StoreError('closed', 'the store is closed')
    if (this.#isAlone) throw new StoreError('busy', 'a snapshot is being restored')
  }

  /** Behind all that is queued. */
  #post(order: OrderBody, changed?: Waiting['changed']): Promise<Settled> {
    this.#flush()
    const id = ++this.#count
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, changed })
      this.#worker.postMessage({ ...order, id }, [])
    })
  }

  #full(): StoreError {
    return new StoreError('full', noSpace(this.#directory))
  }

  #take(report: Report): void {
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
    for (const outcome of report.results) {
      if (!('sequences' in outcome)) this.#outcomes.push(outcome)
      else this.#outcomes.push(...outcome.sequences.map((sequence, at) => ({ id: outcome.id + at, sequence })))
    }
    this.#tellAppended(report.results)
    if (isFirst) this.#answer(ANSWERED_AT_ONCE)
  }

  /** Before those who wait for it are answered: who ships the log need not wait for them. */
  #tellAppended(results: readonly Outcome[]): void {
    const before = this.newest
    for (const result of results) {
      if ('sequences' in result) this.newest = Math.max(this.newest, result.sequences.at(-1) ?? 0)
      else if ('state' in result) this.newest = result.state.position.sequence
    }
    if (this.newest <= before) return
    this.onReport()
    this.onAppended(this.newest)
  }

  /** Answers in order, some at once: whoever is answered goes on at once, and others want to be served in between. */
  #answer(most: number): void {
    this.onReport()
    for (const outcome of this.#outcomes.splice(0, most)) {
      const waiting = this.#waiting.get(outcome.id)
      if (!waiting) continue
      this.#waiting.delete(outcome.id)
      const failure = failureOf(outcome, this.#directory)
      if (waiting.write && 'sequence' in outcome) this.onWritten(waiting.write.batch, outcome.sequence)
      if (waiting.write) this.#settle(outcome.id, waiting.write, failure)
      if (failure === undefined) waiting.changed?.(outcome)
      if (failure === undefined) waiting.resolve(outcome)
      else waiting.reject(failure === 'dropped' ? this.#dropped() : failure)
    }
    if (this.#outcomes.length > 0) setImmediate(() => this.#answer(ANSWERED_AT_ONCE))
  }

  #settle(id: number, { generation, bytes, batch }: QueuedWrite, failure: StoreError | 'dropped' | undefined): void {
    this.#queuedBytes -= bytes
    this.counts[failure === undefined ? 'done' : 'failed']++
    if (generation !== this.#generation) return
    if (failure !== undefined) return this.#beginGeneration(failure === 'dropped' ? this.#dropped() : failure)
    for (const { path } of batch.puts) this.#uncover(path, id)
    for (const path of batch.deletes) this.#uncover(path, id)
  }

  #uncover(path: string, id: number): void {
    if (this.#overlay.get(path)?.id === id) this.#overlay.delete(path)
  }

  #beginGeneration(cause: StoreError): void {
    this.#cause = cause
    this.#generation++
    this.#overlay.clear()
    for (const listener of this.#listeners) listener()
  }

  #dropped(): StoreError {
    const { kind, message } = this.#cause ?? { kind: 'failed' as const, message: 'unknown' }
    return new StoreError(kind, `a commit before this one failed: ${message}`)
  }

  #break(error: StoreError): void {
    if (this.#broken) return
    // What the writer said before it ended holds.
    this.#answer(Number.MAX_SAFE_INTEGER)
    this.#broken = error
    const lost = [...this.#waiting.values()]
    this.counts.failed += lost.filter(({ write }) => write).length
    this.#waiting.clear()
    this.#queuedBytes = 0
    if (lost.some(({ write }) => write)) this.#beginGeneration(error)
    for (const { reject } of lost) reject(error)
  }
}

function isDone(outcome: Settled): boolean {
  return 'done' in outcome
}

function failureOf(outcome: Settled, directory: string): StoreError | 'dropped' | undefined {
  if ('failure' in outcome) {
    const { message, code } = outcome.failure
    if (code === DISPLACED) return new StoreError('displaced', message)
    return code === FULL ? new StoreError('full', noSpace(directory)) : new StoreError('failed', message)
  }
  if (!('result' in outcome)) return undefined
  const { result } = outcome
  if (result.kind === 'dropped') return 'dropped'
  return result.kind === 'replica' ? replicaError() : fencedError(result.epoch)
}
