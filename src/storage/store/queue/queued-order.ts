/** Orders to the writer that have no result yet, and their results (`writer-queue.ts`). */
import type { Batch } from '../../sqlite/batch.ts'
import { DISPLACED, fencedError, noSpace, notApplied, replicaError, StoreError } from '../../sqlite/store-error.ts'
import type { OrderOutcome, WriterOrder } from '../writer-thread.ts'
import type { EncodedGroup } from '../group-message.ts'
import { TransientMap } from '../../../platform/transient-map.ts'

/** SQLITE_FULL. */
const FULL = 13

export type OrderBody = WriterOrder extends infer O
  ? O extends { readonly id: number }
    ? Omit<O, 'id'>
    : never
  : never

export type ReplicationOrder = Extract<OrderBody, { kind: 'replica' | 'logged' | 'logged order' | 'member copy' }>

export interface PendingOrder {
  readonly resolve: (outcome: OrderResult) => void
  readonly reject: (error: Error) => void
  readonly write?: QueuedWrite
  /** The commit stream has it: it is committed, also if this database cannot apply it. */
  isInStream?: boolean
  /** Called on success, before any read can return the earlier state. */
  readonly changed?: ((outcome: OrderResult) => void) | undefined
}

export interface QueuedWrite {
  readonly generation: number
  readonly bytes: number
  readonly batch: Batch
}

/** The result of one order. */
export type OrderResult =
  | Exclude<OrderOutcome, { readonly sequences: unknown }>
  | { readonly id: number; readonly sequence: number }

export function isDone(outcome: OrderResult): boolean {
  return 'done' in outcome
}

/** The orders of the batches of a group that have no result yet. */
export function pendingOf(
  pending: { get(id: number): PendingOrder | undefined },
  { id, lengths }: Pick<EncodedGroup, 'id' | 'lengths'>,
): PendingOrder[] {
  return lengths.flatMap((_, at) => pending.get(id + at) ?? [])
}

export function failureOf(
  outcome: OrderResult,
  directory: string,
  { isInStream }: Pick<PendingOrder, 'isInStream'>,
): StoreError | 'dropped' | undefined {
  if ('failure' in outcome) {
    const { message, code } = outcome.failure
    if (isInStream) return notApplied(message)
    if (code === DISPLACED) return new StoreError('displaced', message)
    return code === FULL ? new StoreError('full', noSpace(directory)) : new StoreError('failed', message)
  }
  if (!('result' in outcome)) return undefined
  const { result } = outcome
  if (result.kind === 'dropped') return 'dropped'
  return result.kind === 'replica' ? replicaError() : fencedError(result.epoch)
}

/** One result for each order. */
export function resultsOf(outcomes: readonly OrderOutcome[]): OrderResult[] {
  return outcomes.flatMap((outcome): OrderResult | OrderResult[] => {
    if (!('sequences' in outcome)) return outcome
    return outcome.sequences.map((sequence, at) => ({ id: outcome.id + at, sequence }))
  })
}

/** The queued value of a path; undefined for a deletion. */
export interface QueuedValue {
  readonly value: Uint8Array | undefined
}

export class QueuedValues {
  /** With the ID of the batch. */
  readonly #values = new TransientMap<string, QueuedValue & { readonly id: number }>()

  get(path: string): QueuedValue | undefined {
    return this.#values.get(path)
  }

  add({ puts, deletes }: Batch, id: number): void {
    for (const { path, value } of puts) this.#values.set(path, { value, id })
    for (const path of deletes) this.#values.set(path, { value: undefined, id })
  }

  /** Removes the values that no later batch has replaced. */
  remove({ puts, deletes }: Batch, id: number): void {
    for (const { path } of puts) this.#removePath(path, id)
    for (const path of deletes) this.#removePath(path, id)
  }

  #removePath(path: string, id: number): void {
    if (this.#values.get(path)?.id === id) this.#values.delete(path)
  }

  clear(): void {
    this.#values.clear()
  }
}

/** The order in which groups and orders are sent to the writer, while some of them wait for the commit log. */
export class SendOrder {
  /** Resolves when all so far were sent; undefined when none waits. */
  #sending: Promise<void> | undefined

  /** Runs `send` at once, or after what waits for the commit log. It must not throw or reject. */
  run(send: () => Promise<void> | void): void {
    const sending = this.#sending ? this.#sending.then(send) : send()
    if (!sending) return
    this.#sending = sending
    void sending.finally(() => {
      if (this.#sending === sending) this.#sending = undefined
    })
  }
}
