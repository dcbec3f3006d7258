/** The thread of the writer: everything that has arrived by the time it is free goes into one commit. */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { openForWriting } from './database.ts'
import { type WriteResult, Writer } from './writer.ts'

export type Order =
  | { readonly kind: 'write'; readonly id: number; readonly batch: Uint8Array; readonly epoch: number }
  | { readonly kind: 'raise epoch'; readonly id: number; readonly epoch: number }
  | { readonly kind: 'trim'; readonly id: number; readonly sequence: number; readonly limit: number }
  | { readonly kind: 'close'; readonly id: number }

export type Report = { readonly kind: 'open' } | { readonly kind: 'done'; readonly results: readonly Outcome[] }

export type Outcome =
  | { readonly id: number; readonly result: WriteResult }
  | { readonly id: number; readonly count: number }
  | { readonly id: number; readonly failure: { readonly message: string; readonly code: number } }

/** Batches of one transaction; more would keep the first waiting. */
const GROUP_MAX = 512

const port = parentPort
if (!port) throw new Error('this file is a thread, see store.ts')
const orders = port
const database = openForWriting((workerData as { path: string }).path)
const writer = new Writer(database)

function failureOf(error: unknown): { message: string; code: number } {
  const code =
    error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode & 0xff : 0
  return { message: error instanceof Error ? error.message : String(error), code }
}

type Write = Extract<Order, { kind: 'write' }>

function write(group: readonly Write[]): Outcome[] {
  try {
    const results = writer.write(group)
    return group.flatMap(({ id }, at) => {
      const result = results[at]
      return result ? [{ id, result }] : []
    })
  } catch (error) {
    const failure = failureOf(error)
    return group.map(({ id }) => ({ id, failure }))
  }
}

function other(order: Exclude<Order, Write>): Outcome {
  const { id } = order
  try {
    if (order.kind === 'raise epoch') writer.raiseEpoch(order.epoch)
    else if (order.kind === 'close') database.close()
    else return { id, count: writer.trimLog(order.sequence, order.limit) }
    return { id, count: 0 }
  } catch (error) {
    return { id, failure: failureOf(error) }
  }
}

/** The next order that has arrived already. */
function arrived(): Order | undefined {
  const received: { message: Order } | undefined = receiveMessageOnPort(orders)
  return received?.message
}

port.on('message', (first: Order) => {
  let next: Order | undefined = first
  while (next) {
    const group: Write[] = []
    while (next?.kind === 'write' && group.length < GROUP_MAX) {
      group.push(next)
      next = arrived()
    }
    const results = group.length > 0 ? write(group) : []
    if (next && next.kind !== 'write') {
      results.push(other(next))
      next = arrived()
    }
    port.postMessage({ kind: 'done', results } satisfies Report)
  }
})
port.postMessage({ kind: 'open' } satisfies Report)
