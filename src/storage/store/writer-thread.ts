/**
 * The writer of one database, in a worker thread (`store-worker.ts`). All batches that arrived during a commit go into the next one.
 * After an idle time it truncates the write-ahead log, so that deleted content is in no file. It also checks the files
 * (`file-guard.ts`) and the space on the disk.
 */
import type { DatabaseSync } from 'node:sqlite'
import { DiskReserve } from '../../platform/disk-reserve.ts'
import { Refusal } from '../../platform/errors.ts'
import { type Batch, decodeBatch, mayUseReserve } from '../sqlite/batch.ts'
import { lockDatabase } from '../sqlite/database-files.ts'
import { Checkpoint, openForWriting } from '../sqlite/database.ts'
import { DisplacedFilesError, type FileFault, FileGuard, WalLength } from '../sqlite/file-guard.ts'
import { factIn, type LogLimits } from '../sqlite/rows.ts'
import { type NewestPosition, SeenFile } from '../sqlite/seen-file.ts'
import type { GroupMark, LoggedGroup } from './commit-log.ts'
import type { StreamMark } from './stream-mark.ts'
import { changesOf, type MemberCopyOrder, type ReplicaOrder, ReplicaWriter, sizeOf } from './replica-writer.ts'
import { NotChained, type ReplicaState } from './replica.ts'
import { streamMarkIn } from './stream-mark.ts'
import { StagedSnapshot } from './staged-snapshot.ts'
import { verifyRecords } from '../snapshot/format/snapshot-records.ts'
import { applySnapshot, type ReceivedSnapshot } from './snapshot-entries.ts'
import { type TreeAnswer, type TreeOrder, TreeWriter } from './tree-writer.ts'
import { batchesIn, type EncodedGroup } from './group-message.ts'
import { Writer, type WriteRequest, type WriteResult } from './batch-transaction.ts'

export interface WriterSettings {
  readonly path: string
  readonly log?: LogLimits
  /** See `WalLength`. */
  readonly walLength?: SharedArrayBuffer
}

/** A message to the writer of an open database. */
export type WriterOrder =
  /** `mark`: the commit stream has the group. */
  | ({ readonly kind: 'write'; readonly mark?: GroupMark } & EncodedGroup)
  /** Applies groups of another server. */
  | { readonly kind: 'logged'; readonly id: number; readonly groups: readonly LoggedGroup[] }
  | { readonly kind: 'raise epoch'; readonly id: number; readonly epoch: number }
  /** `mark`: this server has appended the order to the commit stream. */
  | { readonly kind: 'replica'; readonly id: number; readonly order: ReplicaOrder; readonly mark?: StreamMark }
  /** Executes an order of another server. */
  | { readonly kind: 'logged order'; readonly id: number; readonly order: ReplicaOrder; readonly mark: StreamMark }
  /** Verifies an order that is about to be appended to the commit stream. */
  | { readonly kind: 'check'; readonly id: number; readonly order: ReplicaOrder }
  | { readonly kind: 'member copy'; readonly id: number; readonly order: MemberCopyOrder }
  | { readonly kind: 'tree'; readonly id: number; readonly order: TreeOrder }
  | { readonly kind: 'acknowledged'; readonly id: number; readonly sequence: number | undefined }
  | ({ readonly kind: 'restore'; readonly id: number; readonly fd: number } & ReceivedSnapshot)
  /** Sets the generation of the operation token, see `seen-file.ts`. */
  | { readonly kind: 'generation'; readonly id: number; readonly generation: string | undefined }
  /** `seen`: write the file `.seen`. `role code`: record in it that the state of replication has a code. */
  | { readonly kind: 'nothing' | 'seen' | 'role code' | 'close'; readonly id: number }

export type WriterReport =
  | { readonly kind: 'open' }
  /** `isFull`: commits that need space must be refused. */
  | { readonly kind: 'space'; readonly isFull: boolean }
  /** The current fault of the database files. Commits must be refused until it is undefined. */
  | { readonly kind: 'files'; readonly fault: FileFault | undefined }
  /** `groups`: number of groups with these results. `writeMs`: duration of their transaction with its sync. */
  | {
      readonly kind: 'done'
      readonly results: readonly OrderOutcome[]
      readonly groups: number
      readonly writeMs: number
    }

export type OrderOutcome =
  /** A batch that was not written. */
  | { readonly id: number; readonly result: Exclude<WriteResult, { readonly kind: 'written' }> }
  /** Written batches: `id` and the consecutive IDs. */
  | { readonly id: number; readonly sequences: number[] }
  | { readonly id: number; readonly done: true }
  /** State after an order of replication. */
  | { readonly id: number; readonly state: ReplicaState }
  | { readonly id: number; readonly tree: TreeAnswer }
  /** Rows that do not follow the newest row, or a malformed order. */
  | { readonly id: number; readonly notChained: string }
  /** Invalid input; the text is for the caller. */
  | { readonly id: number; readonly refusal: string }
  | { readonly id: number; readonly failure: { readonly message: string; readonly code: number } }

/** Batches of one transaction; a group may exceed it. More would delay the first one. */
const BATCHES_MAX = 512
/** Bytes of one transaction; a single group may be larger. */
const BYTES_MAX = 8 << 20
/** Idle time before the write-ahead log is truncated. */
const IDLE_MS = 2000
/** Interval between trims of the log, and the pause while more rows must be trimmed. */
const TRIM_MS = 60_000
const TRIM_MORE_MS = 20
/** Interval between checks of the files and the space on the disk. */
const CHECK_MS = 200
/** Delay of the reserve after opening: the first commits do not wait for writing 8 MiB. */
const RESERVE_DELAY_MS = 2000
/** SQLITE_FULL. */
const FULL = 13
/** Of groups from the stream: they do not depend on commits of this server, and their failure drops none of them. */
const NO_GENERATION = -1
const BEHIND_STREAM = 'an earlier change of the commit stream was not applied'

type WriteOrder = Extract<WriterOrder, { kind: 'write' }>

/** The writer's connection to the main thread. */
export interface WriterPort {
  report(report: WriterReport): void
  /** The next order that has already arrived. */
  nextOrder(): WriterOrder | undefined
}

export class DatabaseWriter {
  readonly #port: WriterPort
  readonly #log: LogLimits | undefined
  readonly #lock: DatabaseSync
  readonly #reserve: DiskReserve
  readonly #database: DatabaseSync
  readonly #guard: FileGuard
  readonly #checkpoint: Checkpoint
  readonly #seen: SeenFile
  readonly #staged: StagedSnapshot
  #cluster: string
  #writer: Writer
  #replica: ReplicaWriter
  #tree: TreeWriter
  #isFull = false
  /** Something that this server has appended to the commit stream was not applied: nothing after it may be. */
  #isBehindStream = false
  /** Transactions are synced. */
  #isSynced = true
  #faultText: string | undefined
  readonly #openedAtMs = performance.now()
  #idle: NodeJS.Timeout | undefined
  #trimming: NodeJS.Timeout
  readonly #checking: NodeJS.Timeout

  /** Opens or creates the database and reports `open`. Throws a Fault for the operator. */
  constructor({ path, log, walLength }: WriterSettings, port: WriterPort) {
    this.#port = port
    this.#log = log
    this.#lock = lockDatabase(path)
    this.#reserve = new DiskReserve(`${path}.reserve`)
    this.#reserve.makeRoom()
    this.#database = openForWriting(path)
    this.#guard = new FileGuard(path, this.#database, new WalLength(walLength))
    this.#checkpoint = new Checkpoint(this.#database)
    this.#writer = this.#newWriter()
    this.#replica = new ReplicaWriter(this.#database, this.#writer)
    this.#tree = new TreeWriter(this.#database, this.#writer)
    this.#seen = new SeenFile(path)
    this.#staged = new StagedSnapshot(path)
    this.#cluster = String(factIn(this.#database, 'cluster'))
    this.#trimming = setTimeout(() => this.#trim(), TRIM_MS)
    port.report({ kind: 'open' })
    this.#checkSpace()
    this.#checking = setInterval(() => this.#check(), CHECK_MS)
  }

  /** False after the order `close`. */
  get isOpen(): boolean {
    return this.#database.isOpen
  }

  /** Executes an order and those that arrive meanwhile. */
  execute(first: WriterOrder): void {
    this.#serve(first)
    if (!this.isOpen) return
    if (this.#idle) this.#idle.refresh()
    else this.#idle = setTimeout(() => this.#truncateWal(), IDLE_MS)
  }

  #newWriter(): Writer {
    return new Writer(this.#database, this.#log, Date.now, this.#guard)
  }

  #write(groups: readonly WriteOrder[]): OrderOutcome[] {
    try {
      const requests = groups.flatMap(requestsOf)
      const stream = groups.findLast(({ mark }) => mark)?.mark
      if (stream && this.#isBehindStream) throw new NotChained(BEHIND_STREAM)
      this.#setSync(!groups.every(({ mark }) => mark))
      const results = this.#writer.write(requests, { shouldRetry: (error) => this.#mayRetry(error, requests), stream })
      let at = 0
      return groups.flatMap(({ id, lengths }) => outcomesOf(id, results.slice(at, (at += lengths.length))))
    } catch (error) {
      const failure = failureOf(error)
      this.#isBehindStream ||= groups.some(({ mark }) => mark)
      this.#checkFiles()
      return groups.flatMap(({ id, lengths }) => lengths.map((_, at) => ({ id: id + at, failure })))
    }
  }

  /**
   * Groups of the commit stream need no sync: after a power failure the database continues with the first group that it lost. SQLite
   * syncs the write-ahead log before a checkpoint in any case.
   */
  #setSync(isSynced: boolean): void {
    if (isSynced === this.#isSynced) return
    this.#database.exec(`PRAGMA synchronous = ${isSynced ? 'FULL' : 'NORMAL'}`)
    this.#isSynced = isSynced
  }

  #mayRetry(error: unknown, requests: readonly WriteRequest[]): boolean {
    return failureOf(error).code === FULL && this.#freeReserve(requests.map(({ batch }) => decodeBatch(batch)))
  }

  /** Applies the groups that the database does not have yet. */
  #applyLogged(groups: readonly LoggedGroup[]): ReplicaState {
    const before = streamMarkIn(this.#database)
    const missing = groups.filter(({ mark }) => mark.stream !== before?.stream || mark.position > before.position)
    const requests = missing.flatMap((group) => requestsOf({ ...group, generation: NO_GENERATION }))
    const stream = missing.at(-1)?.mark
    this.#isBehindStream = false
    this.#setSync(false)
    this.#writer.write(requests, { shouldRetry: (error) => this.#mayRetry(error, requests), stream })
    this.#writeSeen()
    this.#checkpoint.add(
      requests.length,
      requests.reduce((sum, { batch }) => sum + batch.length, 0),
    )
    return this.#replica.state
  }

  /** Releases the reserve for batches that may use it. True when a retry can succeed. */
  #freeReserve(batches: readonly Batch[]): boolean {
    this.#checkSpace(true)
    const size = this.#database.prepare('SELECT length(value) AS size FROM entries WHERE path = ?')
    const bytesAt = (name: string) => {
      const row = size.get(name)
      return row && Number(row['size'])
    }
    if (!batches.every((batch) => mayUseReserve(batch, bytesAt))) return false
    if (!this.#reserve.giveUp()) return false
    // A checkpoint lets SQLite reuse the blocks of the write-ahead log.
    this.#guard.empty()
    return true
  }

  /** `isKnownFull`: a commit failed for lack of space. */
  #checkSpace(isKnownFull = false): void {
    try {
      const mayWait = performance.now() - this.#openedAtMs < RESERVE_DELAY_MS
      const isFull = isKnownFull || this.#reserve.look(mayWait)
      if (isFull || isFull !== this.#isFull) this.#port.report({ kind: 'space', isFull })
      this.#isFull = isFull
    } catch {
      // The file system does not report its space: commits fail with an error.
    }
  }

  /** Reports a changed fault, before the results that it caused. */
  #checkFiles(): void {
    const fault = this.#guard.inspectAndSave()
    if (fault?.text === this.#faultText) return
    this.#faultText = fault?.text
    this.#port.report({ kind: 'files', fault })
  }

  #check(): void {
    this.#checkSpace()
    this.#checkFiles()
    this.#seen.reopenIfReplaced()
  }

  #executeOther(order: Exclude<WriterOrder, WriteOrder>): OrderOutcome {
    const { id } = order
    this.#setSync(order.kind !== 'logged' && !isInStream(order))
    try {
      if (order.kind === 'replica') return { id, state: this.#replicateOwn(order.order, order.mark) }
      if (order.kind === 'logged order') return { id, state: this.#replicateLogged(order.order, order.mark) }
      if (order.kind === 'member copy') return { id, state: this.#replicate(order.order) }
      if (order.kind === 'logged') return { id, state: this.#applyLogged(order.groups) }
      if (order.kind === 'tree') return { id, tree: this.#tree.execute(order.order) }
      if (order.kind === 'check') this.#checkOrder(order.order)
      else if (order.kind === 'raise epoch') this.#raiseEpoch(order.epoch)
      else if (order.kind === 'nothing') this.#checkFiles()
      else if (order.kind === 'seen') this.#writeSeen()
      else if (order.kind === 'generation') this.#seen.setGeneration(order.generation, this.#currentPosition)
      else if (order.kind === 'role code') this.#seen.setRoleCode(this.#currentPosition)
      else if (order.kind === 'close') this.#close()
      else if (order.kind === 'restore') this.#restore(order)
      else if (order.kind === 'acknowledged') this.#writer.acknowledged = order.sequence
      return { id, done: true }
    } catch (error) {
      if (error instanceof DisplacedFilesError) this.#checkFiles()
      if (error instanceof Refusal) return { id, refusal: error.message }
      if (error instanceof NotChained) return { id, notChained: error.message }
      return { id, failure: failureOf(error) }
    }
  }

  #restore({ fd, ...received }: Extract<WriterOrder, { kind: 'restore' }>): void {
    this.#replaceEntries(fd, received)
  }

  #replaceEntries(fd: number, received: ReceivedSnapshot, mark?: StreamMark): void {
    this.#guard.beforeCommit()
    applySnapshot(this.#database, fd, received, mark)
    this.#writer = this.#newWriter()
    this.#replica = new ReplicaWriter(this.#database, this.#writer)
    this.#tree = new TreeWriter(this.#database, this.#writer)
    this.#cluster = String(factIn(this.#database, 'cluster'))
    this.#guard.afterCommit()
    this.#writeSeen()
  }

  #replicate(order: ReplicaOrder | MemberCopyOrder, mark?: StreamMark): ReplicaState {
    for (;;) {
      try {
        this.#executeOrder(order, mark)
        break
      } catch (error) {
        if (failureOf(error).code !== FULL || !this.#freeReserve(changesOf(order))) throw error
      }
    }
    this.#cluster = String(factIn(this.#database, 'cluster'))
    if (order.do === 'wipe') this.#seen.remove()
    this.#writeSeen()
    const { batches, bytes } = sizeOf(order)
    this.#checkpoint.add(batches, bytes)
    return this.#replica.state
  }

  #checkOrder(order: ReplicaOrder): void {
    if (order.do !== 'restore') return this.#replica.check(order)
    const { meta, requires, sha256 } = order.received
    this.#staged.read((fd) => verifyRecords(fd, meta, sha256, requires))
  }

  #executeOrder(order: ReplicaOrder | MemberCopyOrder, mark: StreamMark | undefined): void {
    if (isMemberCopy(order)) return this.#replica.executeMemberCopy(order)
    if (order.do === 'stage') this.#staged.write(order.at, order.bytes)
    if (order.do !== 'restore') return this.#replica.execute(order, mark)
    this.#staged.read((fd) => this.#replaceEntries(fd, order.received, mark))
    this.#staged.remove()
  }

  #replicateOwn(order: ReplicaOrder, mark: StreamMark | undefined): ReplicaState {
    if (!mark) return this.#replicate(order)
    if (this.#isBehindStream) throw new NotChained(BEHIND_STREAM)
    try {
      return this.#replicate(order, mark)
    } catch (error) {
      this.#isBehindStream = true
      throw error
    }
  }

  /** Executes an order that the database does not have yet. */
  #replicateLogged(order: ReplicaOrder, mark: StreamMark): ReplicaState {
    this.#isBehindStream = false
    const newest = streamMarkIn(this.#database)
    const isApplied = newest?.stream === mark.stream && mark.position <= newest.position
    if (isApplied) return this.#replica.state
    try {
      return this.#replicate(order, mark)
    } catch (error) {
      // This member lacks a part of the snapshot.
      if (order.do === 'restore' && (error instanceof Refusal || isMissing(error))) throw new NotChained(error.message)
      throw error
    }
  }

  #raiseEpoch(epoch: number): void {
    this.#writer.raiseEpoch(epoch)
    this.#writeSeen()
  }

  #writeSeen(): void {
    this.#seen.write(this.#currentPosition)
  }

  get #currentPosition(): NewestPosition {
    const { epoch, position } = this.#writer
    return { cluster: this.#cluster, epoch, sequence: position.sequence }
  }

  #serve(first: WriterOrder): void {
    let next: WriterOrder | undefined = first
    while (next) {
      const groups: WriteOrder[] = []
      let [batches, bytes] = [0, 0]
      while (next?.kind === 'write' && batches < BATCHES_MAX && bytes < BYTES_MAX) {
        groups.push(next)
        batches += next.lengths.length
        bytes += next.bytes.byteLength
        next = this.#port.nextOrder()
      }
      const startedAtMs = performance.now()
      const results = groups.length > 0 ? this.#write(groups) : []
      if (groups.length > 0) this.#writeSeen()
      const writeMs = performance.now() - startedAtMs
      const isClosing: boolean = next?.kind === 'close'
      if (next && next.kind !== 'write') {
        results.push(this.#executeOther(next))
        // Messages after `close` are for the next database.
        next = isClosing ? undefined : this.#port.nextOrder()
      }
      this.#port.report({ kind: 'done', results, groups: groups.length, writeMs })
      if (this.isOpen) this.#tree.saveIfDue()
      if (groups.length > 0) this.#checkpoint.add(batches, bytes)
      if (this.#checkpoint.isDue && this.isOpen && !this.#guard.inspect()?.isTruncated) this.#checkpoint.run()
    }
  }

  #truncateWal(): void {
    this.#idle = undefined
    // A reader blocked it: retry later.
    if (!this.#guard.empty()) this.#idle = setTimeout(() => this.#truncateWal(), IDLE_MS)
  }

  #trim(): void {
    let isMore = false
    try {
      isMore = this.#writer.trim()
    } catch {
      // A full or failing disk: commits report the error, and the next trim retries.
    }
    this.#trimming = setTimeout(() => this.#trim(), isMore ? TRIM_MORE_MS : TRIM_MS)
  }

  #close(): void {
    clearInterval(this.#checking)
    this.#reserve.close()
    this.#seen.close()
    clearTimeout(this.#idle)
    clearTimeout(this.#trimming)
    this.#database.close()
    this.#guard.close()
    this.#lock.close()
  }
}

/** The commit stream has it, so a transaction that is lost is applied again. */
function isInStream(order: WriterOrder): boolean {
  return (order.kind === 'replica' || order.kind === 'logged order') && order.mark !== undefined
}

function isMissing(error: unknown): error is Error {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}

function isMemberCopy(order: ReplicaOrder | MemberCopyOrder): order is MemberCopyOrder {
  return order.do === 'begin member copy' || order.do === 'member copy' || order.do === 'finish member copy'
}

function failureOf(error: unknown): { message: string; code: number } {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof DisplacedFilesError) return { message, code: error.errcode }
  const code =
    error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode & 0xff : 0
  return { message, code }
}

type RequestGroup = Pick<WriteOrder, 'bytes' | 'lengths' | 'epoch' | 'generation' | 'mark'>

function requestsOf(group: RequestGroup): WriteRequest[] {
  const { epoch, generation, mark } = group
  return Array.from(batchesIn(group), (batch, at) => {
    const row = mark && { sequence: mark.firstSequence + at, atMs: mark.atMs }
    return { batch, epoch, generation, ...(row && { row }) }
  })
}

function outcomesOf(id: number, results: readonly WriteResult[]): OrderOutcome[] {
  const outcomes: OrderOutcome[] = []
  for (const [at, result] of results.entries()) {
    const last = outcomes.at(-1)
    if (result.kind !== 'written') outcomes.push({ id: id + at, result })
    else if (last && 'sequences' in last) last.sequences.push(result.sequence)
    else outcomes.push({ id: id + at, sequences: [result.sequence] })
  }
  return outcomes
}
