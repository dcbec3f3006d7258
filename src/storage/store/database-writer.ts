/**
 * The writer of one database: everything that has arrived by the time it is free goes into one commit. When nothing has
 * arrived for a while it tidies up: the write-ahead log is emptied, so that what was removed is in no file any more. It
 * watches over the files, too (`file-guard.ts`). It runs in a thread of its own (`store-thread.ts`).
 */
import type { DatabaseSync } from 'node:sqlite'
import { DiskReserve } from '../../platform/disk-reserve.ts'
import { Refusal } from '../../platform/errors.ts'
import { type Batch, decodeBatch } from '../sqlite/batch.ts'
import { Checkpoint } from '../sqlite/checkpoint.ts'
import { lockDatabase } from '../sqlite/database-lock.ts'
import { openForWriting } from '../sqlite/database.ts'
import { factIn } from '../sqlite/facts.ts'
import { Displaced, type FileFault, FileGuard, WalLength } from '../sqlite/file-guard.ts'
import type { LogLimits } from '../sqlite/log-limits.ts'
import type { ReplicaState } from './replica-facts.ts'
import { changesOf, type ReplicaOrder, ReplicaWriter, sizeOf } from './replica-writer.ts'
import { NotChained } from './replica.ts'
import { isSparing } from '../sqlite/reserve.ts'
import { type Seen, SeenMark } from '../sqlite/seen-mark.ts'
import { applySnapshot, type Received } from './snapshot-apply.ts'
import { type TreeAnswer, type TreeOrder, TreeWriter } from './tree-writer.ts'
import { batchesIn, type EncodedGroup } from './write-group.ts'
import { type WriteRequest, type WriteResult, Writer } from './writer.ts'

export interface WriterSettings {
  readonly path: string
  readonly log?: LogLimits
  /** See `WalLength`. */
  readonly walLength?: SharedArrayBuffer
}

/** What the writer of an open database does. */
export type Order =
  | ({ readonly kind: 'write' } & EncodedGroup)
  | { readonly kind: 'raise epoch'; readonly id: number; readonly epoch: number }
  | { readonly kind: 'replica'; readonly id: number; readonly order: ReplicaOrder }
  | { readonly kind: 'tree'; readonly id: number; readonly order: TreeOrder }
  | { readonly kind: 'acknowledged'; readonly id: number; readonly sequence: number | undefined }
  | ({ readonly kind: 'restore'; readonly id: number; readonly fd: number } & Received)
  /** Which operation token counts from now on, see `seen-mark.ts`. */
  | { readonly kind: 'generation'; readonly id: number; readonly generation: string | undefined }
  /** `seen`: write the file `.seen` where it is missing. `role code`: note there that the state of replication has a code. */
  | { readonly kind: 'nothing' | 'seen' | 'role code' | 'close'; readonly id: number }

export type Report =
  | { readonly kind: 'open' }
  /** Whether commits that need space are to be refused. */
  | { readonly kind: 'space'; readonly isFull: boolean }
  /** What is wrong with the files of the database from now on; commits are to be refused meanwhile. */
  | { readonly kind: 'files'; readonly fault: FileFault | undefined }
  /** `groups`: how many of them it answers. `writeMs`: what their transaction took, its sync included. */
  | { readonly kind: 'done'; readonly results: readonly Outcome[]; readonly groups: number; readonly writeMs: number }

export type Outcome =
  /** Of a batch that was not written. */
  | { readonly id: number; readonly result: Exclude<WriteResult, { readonly kind: 'written' }> }
  /** Of batches that were written, `id` and those that follow upon it. */
  | { readonly id: number; readonly sequences: number[] }
  | { readonly id: number; readonly done: true }
  /** Of an order of replication: where the store stands then. */
  | { readonly id: number; readonly state: ReplicaState }
  | { readonly id: number; readonly tree: TreeAnswer }
  /** Rows that do not follow upon what there is. */
  | { readonly id: number; readonly notChained: string }
  /** What a caller handed over is not right, in words for it. */
  | { readonly id: number; readonly refusal: string }
  | { readonly id: number; readonly failure: { readonly message: string; readonly code: number } }

/** Batches of one transaction, a group aside; more would keep the first waiting. */
const BATCHES_MAX = 512
/** Likewise of their bytes; a single batch may be larger. */
const BYTES_MAX = 8 << 20
/** Without an order for so long, the write-ahead log is emptied. */
const IDLE_MS = 2000
/** So often the log is looked at for rows that have become too old, and so soon again while there are more. */
const TRIM_MS = 60_000
const TRIM_MORE_MS = 20
/** So often the space on the disk and the files are looked at. */
const LOOK_MS = 200
/** A database that was just opened gets its reserve only then: its first commits need not wait for 8 MiB. */
const RESERVE_AFTER_MS = 2000
const FULL = 13

type Write = Extract<Order, { kind: 'write' }>

/** How the writer reaches the thread that orders: what it tells, and the next order that has arrived already. */
export interface WriterPort {
  tell(report: Report): void
  arrived(): Order | undefined
}

export class DatabaseWriter {
  readonly #port: WriterPort
  readonly #log: LogLimits | undefined
  readonly #lock: DatabaseSync
  readonly #reserve: DiskReserve
  readonly #database: DatabaseSync
  readonly #guard: FileGuard
  readonly #checkpoint: Checkpoint
  readonly #seen: SeenMark
  #cluster: string
  #writer: Writer
  #replica: ReplicaWriter
  #tree: TreeWriter
  #isFull = false
  #faultText: string | undefined
  readonly #openedAtMs = performance.now()
  #idle: NodeJS.Timeout | undefined
  #trimming: NodeJS.Timeout
  readonly #looking: NodeJS.Timeout

  /** Opens the database, or makes it, and tells that it is open. Throws a Fault for the operator. */
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
    this.#seen = new SeenMark(path)
    this.#cluster = String(factIn(this.#database, 'cluster'))
    this.#trimming = setTimeout(() => this.#trim(), TRIM_MS)
    port.tell({ kind: 'open' })
    this.#lookAtSpace()
    this.#looking = setInterval(() => this.#look(), LOOK_MS)
  }

  /** False once it was closed. */
  get isOpen(): boolean {
    return this.#database.isOpen
  }

  /** Carries out the order, and those that have arrived by then. */
  take(first: Order): void {
    this.#serve(first)
    if (!this.isOpen) return
    if (this.#idle) this.#idle.refresh()
    else this.#idle = setTimeout(() => this.#rest(), IDLE_MS)
  }

  #newWriter(): Writer {
    return new Writer(this.#database, this.#log, Date.now, this.#guard)
  }

  #write(groups: readonly Write[]): Outcome[] {
    try {
      const requests = groups.flatMap(requestsOf)
      const results = this.#writer.write(
        requests,
        (error) => failureOf(error).code === FULL && this.#makesRoom(requests.map(({ batch }) => decodeBatch(batch))),
      )
      let at = 0
      return groups.flatMap(({ id, lengths }) => outcomesOf(id, results.slice(at, (at += lengths.length))))
    } catch (error) {
      const failure = failureOf(error)
      this.#lookAtFiles()
      return groups.flatMap(({ id, lengths }) => lengths.map((_, at) => ({ id: id + at, failure })))
    }
  }

  /** True when there is space now for what only frees or rewrites. */
  #makesRoom(batches: readonly Batch[]): boolean {
    this.#lookAtSpace(true)
    const size = this.#database.prepare('SELECT length(value) AS size FROM entries WHERE path = ?')
    const bytesAt = (name: string) => {
      const row = size.get(name)
      return row && Number(row['size'])
    }
    if (!batches.every((batch) => isSparing(batch, bytesAt))) return false
    if (!this.#reserve.giveUp()) return false
    // What the write-ahead log holds gets its place, and its blocks are used again.
    this.#guard.empty()
    return true
  }

  /** `isKnown`: a commit has found no space. */
  #lookAtSpace(isKnown = false): void {
    try {
      const mayWait = performance.now() - this.#openedAtMs < RESERVE_AFTER_MS
      const now = isKnown || this.#reserve.look(mayWait)
      if (now || now !== this.#isFull) this.#port.tell({ kind: 'space', isFull: now })
      this.#isFull = now
    } catch {
      // A file system that does not say: commits find out.
    }
  }

  /** Tells when something else is wrong with them than before, before the answers that it is the reason of. */
  #lookAtFiles(): void {
    const fault = this.#guard.lookAndSave()
    if (fault?.text === this.#faultText) return
    this.#faultText = fault?.text
    this.#port.tell({ kind: 'files', fault })
  }

  #look(): void {
    this.#lookAtSpace()
    this.#lookAtFiles()
    this.#seen.look()
  }

  #other(order: Exclude<Order, Write>): Outcome {
    const { id } = order
    try {
      if (order.kind === 'replica') return { id, state: this.#replicate(order.order) }
      if (order.kind === 'tree') return { id, tree: this.#tree.take(order.order) }
      if (order.kind === 'raise epoch') this.#raiseEpoch(order.epoch)
      else if (order.kind === 'nothing') this.#lookAtFiles()
      else if (order.kind === 'seen') this.#mark()
      else if (order.kind === 'generation') this.#seen.setGeneration(order.generation, this.#seenNow)
      else if (order.kind === 'role code') this.#seen.setRoleCode(this.#seenNow)
      else if (order.kind === 'close') this.#close()
      else if (order.kind === 'restore') this.#restore(order)
      else if (order.kind === 'acknowledged') this.#writer.acknowledged = order.sequence
      return { id, done: true }
    } catch (error) {
      if (error instanceof Displaced) this.#lookAtFiles()
      if (error instanceof Refusal) return { id, refusal: error.message }
      if (error instanceof NotChained) return { id, notChained: error.message }
      return { id, failure: failureOf(error) }
    }
  }

  #restore({ fd, ...received }: Extract<Order, { kind: 'restore' }>): void {
    this.#guard.beforeCommit()
    applySnapshot(this.#database, fd, received)
    this.#writer = this.#newWriter()
    this.#replica = new ReplicaWriter(this.#database, this.#writer)
    this.#tree = new TreeWriter(this.#database, this.#writer)
    this.#cluster = String(factIn(this.#database, 'cluster'))
    this.#guard.afterCommit()
    this.#mark()
  }

  #replicate(order: ReplicaOrder): ReplicaState {
    for (;;) {
      try {
        this.#replica.take(order)
        break
      } catch (error) {
        if (failureOf(error).code !== FULL || !this.#makesRoom(changesOf(order))) throw error
      }
    }
    this.#cluster = String(factIn(this.#database, 'cluster'))
    if (order.do === 'wipe') this.#seen.forget()
    this.#mark()
    const { batches, bytes } = sizeOf(order)
    this.#checkpoint.wrote(batches, bytes)
    return this.#replica.state
  }

  #raiseEpoch(epoch: number): void {
    this.#writer.raiseEpoch(epoch)
    this.#mark()
  }

  #mark(): void {
    this.#seen.write(this.#seenNow)
  }

  get #seenNow(): Seen {
    const { epoch, position } = this.#writer
    return { cluster: this.#cluster, epoch, sequence: position.sequence }
  }

  #serve(first: Order): void {
    let next: Order | undefined = first
    while (next) {
      const groups: Write[] = []
      let [batches, bytes] = [0, 0]
      while (next?.kind === 'write' && batches < BATCHES_MAX && bytes < BYTES_MAX) {
        groups.push(next)
        batches += next.lengths.length
        bytes += next.bytes.byteLength
        next = this.#port.arrived()
      }
      const beganAtMs = performance.now()
      const results = groups.length > 0 ? this.#write(groups) : []
      if (groups.length > 0) this.#mark()
      const writeMs = performance.now() - beganAtMs
      const isClosing: boolean = next?.kind === 'close'
      if (next && next.kind !== 'write') {
        results.push(this.#other(next))
        // What arrives behind the end is for the next database.
        next = isClosing ? undefined : this.#port.arrived()
      }
      this.#port.tell({ kind: 'done', results, groups: groups.length, writeMs })
      if (this.isOpen) this.#tree.tidy()
      if (groups.length > 0) this.#checkpoint.wrote(batches, bytes)
      if (this.#checkpoint.isDue && this.isOpen && !this.#guard.look()?.isCut) this.#checkpoint.run()
    }
  }

  #rest(): void {
    this.#idle = undefined
    // A reader that is in the middle of something keeps it from being emptied: again later.
    if (!this.#guard.empty()) this.#idle = setTimeout(() => this.#rest(), IDLE_MS)
  }

  #trim(): void {
    let isMore = false
    try {
      isMore = this.#writer.trim()
    } catch {
      // A full or failing disk: whoever commits is told, and the next time is soon enough.
    }
    this.#trimming = setTimeout(() => this.#trim(), isMore ? TRIM_MORE_MS : TRIM_MS)
  }

  #close(): void {
    clearInterval(this.#looking)
    this.#reserve.close()
    this.#seen.close()
    clearTimeout(this.#idle)
    clearTimeout(this.#trimming)
    this.#database.close()
    this.#guard.close()
    this.#lock.close()
  }
}

function failureOf(error: unknown): { message: string; code: number } {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof Displaced) return { message, code: error.errcode }
  const code =
    error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode & 0xff : 0
  return { message, code }
}

function requestsOf(group: Write): WriteRequest[] {
  const { epoch, generation } = group
  return Array.from(batchesIn(group), (batch) => ({ batch, epoch, generation }))
}

function outcomesOf(id: number, results: readonly WriteResult[]): Outcome[] {
  const outcomes: Outcome[] = []
  for (const [at, result] of results.entries()) {
    const last = outcomes.at(-1)
    if (result.kind !== 'written') outcomes.push({ id: id + at, result })
    else if (last && 'sequences' in last) last.sequences.push(result.sequence)
    else outcomes.push({ id: id + at, sequences: [result.sequence] })
  }
  return outcomes
}
