/**
 * The thread of the writer: everything that has arrived by the time it is free goes into one commit. When nothing has
 * arrived for a while it tidies up: the write-ahead log is emptied, so that what was removed is in no file any more. It
 * watches over the files, too (`file-guard.ts`).
 */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { Refusal } from '../kit/errors.ts'
import { Checkpoint } from './checkpoint.ts'
import { lockDatabase } from './database-lock.ts'
import { openForWriting } from './database.ts'
import { Displaced, type FileFault, FileGuard } from './file-guard.ts'
import type { LogLimits } from './log-limits.ts'
import { decodeBatch } from './batch.ts'
import { isSparing, Reserve } from './reserve.ts'
import { applySnapshot, type Received } from './snapshot-apply.ts'
import { batchesIn, type EncodedGroup } from './write-group.ts'
import { type WriteRequest, type WriteResult, Writer } from './writer.ts'

export interface WriterSettings {
  readonly path: string
  readonly log?: LogLimits
}

export type Order =
  | ({ readonly kind: 'write' } & EncodedGroup)
  | { readonly kind: 'raise epoch'; readonly id: number; readonly epoch: number }
  | { readonly kind: 'acknowledged'; readonly id: number; readonly sequence: number | undefined }
  | ({ readonly kind: 'restore'; readonly id: number; readonly fd: number } & Received)
  | { readonly kind: 'nothing' | 'close'; readonly id: number }

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
const FULL = 13

const port = parentPort
if (!port) throw new Error('this file is a thread, see store.ts')
const orders = port
const tell = (report: Report) => port.postMessage(report)
const { path, log } = workerData as WriterSettings
const lock = lockDatabase(path)
const reserve = new Reserve(path)
reserve.makeRoom()
const database = openForWriting(path)
const guard = new FileGuard(path, database)
const checkpoint = new Checkpoint(database)
let writer = newWriter()

function newWriter(): Writer {
  return new Writer(database, log, Date.now, guard)
}

function failureOf(error: unknown): { message: string; code: number } {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof Displaced) return { message, code: error.errcode }
  const code =
    error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode & 0xff : 0
  return { message, code }
}

type Write = Extract<Order, { kind: 'write' }>

function write(groups: readonly Write[]): Outcome[] {
  try {
    const requests = groups.flatMap(requestsOf)
    const results = writer.write(requests, (error) => failureOf(error).code === FULL && makesRoom(requests))
    let at = 0
    return groups.flatMap(({ id, lengths }) => outcomesOf(id, results.slice(at, (at += lengths.length))))
  } catch (error) {
    const failure = failureOf(error)
    lookAtFiles()
    return groups.flatMap(({ id, lengths }) => lengths.map((_, at) => ({ id: id + at, failure })))
  }
}

/** True when there is space now for what only frees or rewrites. */
function makesRoom(requests: readonly WriteRequest[]): boolean {
  lookAtSpace(true)
  const size = database.prepare('SELECT length(value) AS size FROM entries WHERE path = ?')
  const sizeOf = (name: string) => {
    const row = size.get(name)
    return row && Number(row['size'])
  }
  if (!requests.every(({ batch }) => isSparing(decodeBatch(batch), sizeOf))) return false
  if (!reserve.giveUp()) return false
  // What the write-ahead log holds gets its place, and its blocks are used again.
  guard.empty()
  return true
}

let isFull = false

/** `isKnown`: a commit has found no space. */
function lookAtSpace(isKnown = false): void {
  try {
    const now = isKnown || reserve.look()
    if (now || now !== isFull) tell({ kind: 'space', isFull: now })
    isFull = now
  } catch {
    // A file system that does not say: commits find out.
  }
}

let faultText: string | undefined

/** Tells when something else is wrong with them than before, before the answers that it is the reason of. */
function lookAtFiles(): void {
  const fault = guard.lookAndSave()
  if (fault?.text === faultText) return
  faultText = fault?.text
  tell({ kind: 'files', fault })
}

function look(): void {
  lookAtSpace()
  lookAtFiles()
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

function other(order: Exclude<Order, Write>): Outcome {
  const { id } = order
  try {
    if (order.kind === 'raise epoch') writer.raiseEpoch(order.epoch)
    else if (order.kind === 'nothing') lookAtFiles()
    else if (order.kind === 'close') close()
    else if (order.kind === 'restore') restore(order)
    else if (order.kind === 'acknowledged') writer.acknowledged = order.sequence
    return { id, done: true }
  } catch (error) {
    if (error instanceof Displaced) lookAtFiles()
    if (error instanceof Refusal) return { id, refusal: error.message }
    return { id, failure: failureOf(error) }
  }
}

function restore({ fd, ...received }: Extract<Order, { kind: 'restore' }>): void {
  guard.beforeCommit()
  applySnapshot(database, fd, received)
  writer = newWriter()
  guard.afterCommit()
}

/** The next order that has arrived already. */
function arrived(): Order | undefined {
  const received: { message: Order } | undefined = receiveMessageOnPort(orders)
  return received?.message
}

function serve(first: Order): void {
  let next: Order | undefined = first
  while (next) {
    const groups: Write[] = []
    let [batches, bytes] = [0, 0]
    while (next?.kind === 'write' && batches < BATCHES_MAX && bytes < BYTES_MAX) {
      groups.push(next)
      batches += next.lengths.length
      bytes += next.bytes.byteLength
      next = arrived()
    }
    const beganAtMs = performance.now()
    const results = groups.length > 0 ? write(groups) : []
    const writeMs = performance.now() - beganAtMs
    if (next && next.kind !== 'write') {
      results.push(other(next))
      next = arrived()
    }
    tell({ kind: 'done', results, groups: groups.length, writeMs })
    if (groups.length > 0) checkpoint.wrote(batches, bytes)
    if (checkpoint.isDue && database.isOpen && !guard.look()?.isCut) checkpoint.run()
  }
}

let idle: NodeJS.Timeout | undefined

function rest(): void {
  idle = undefined
  // A reader that is in the middle of something keeps it from being emptied: again later.
  if (!guard.empty()) idle = setTimeout(rest, IDLE_MS)
}

let trimming: NodeJS.Timeout

function trim(): void {
  let isMore = false
  try {
    isMore = writer.trim()
  } catch {
    // A full or failing disk: whoever commits is told, and the next time is soon enough.
  }
  trimming = setTimeout(trim, isMore ? TRIM_MORE_MS : TRIM_MS)
}

function close(): void {
  clearInterval(looking)
  reserve.close()
  clearTimeout(idle)
  clearTimeout(trimming)
  database.close()
  guard.close()
  lock.close()
}

orders.on('message', (first: Order) => {
  serve(first)
  if (!database.isOpen) return
  if (idle) idle.refresh()
  else idle = setTimeout(rest, IDLE_MS)
})
trimming = setTimeout(trim, TRIM_MS)
tell({ kind: 'open' })
lookAtSpace()
const looking = setInterval(look, LOOK_MS)
