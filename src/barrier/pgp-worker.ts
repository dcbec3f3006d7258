/**
 * PGP keys away from the thread that serves everybody. One worker thread takes one order after another; an order that takes
 * too long, or too much memory, ends the thread and is refused, and the next order gets another thread. A thread that has
 * nothing to do ends after a while and does not keep the process from ending.
 */
import { Worker } from 'node:worker_threads'
import { Fault, messageOf, Refusal } from '../kit/errors.ts'
import type { PgpAnswer, PgpOrder } from './pgp-thread.ts'

export interface PgpWorkerOptions {
  /** For one order, the start of the thread included. */
  readonly orderMs?: number
  readonly idleMs?: number
}

/** A key that people use takes some milliseconds; the library some hundred to be loaded, more where others compute. */
const ORDER_MS = 20_000
const IDLE_MS = 10_000
const MEMORY_MIB = 256

export class PgpWorker {
  readonly #orderMs: number
  readonly #idleMs: number
  #worker: Worker | undefined
  #idle: NodeJS.Timeout | undefined
  #turns: Promise<unknown> = Promise.resolve()

  constructor({ idleMs, orderMs }: PgpWorkerOptions = {}) {
    this.#orderMs = orderMs ?? ORDER_MS
    this.#idleMs = idleMs ?? IDLE_MS
  }

  /** Takes over `plain` of the order. Rejects with a Refusal where the key is no good, or costs too much. */
  ask(order: PgpOrder): Promise<Exclude<PgpAnswer, { unfit: string } | { failure: string }>> {
    const asked = this.#turns.then(async () => {
      const done = await this.#answer(order)
      if ('unfit' in done) throw new Refusal('invalid_request', `error parsing PGP key: ${done.unfit}`)
      if ('failure' in done) throw new Fault(`the PGP thread failed: ${done.failure}`)
      return done
    })
    this.#turns = asked.catch(() => undefined)
    return asked
  }

  async #answer(order: PgpOrder): Promise<PgpAnswer> {
    clearTimeout(this.#idle)
    const worker = (this.#worker ??= this.#start())
    worker.ref()
    const { promise, reject, resolve } = Promise.withResolvers<PgpAnswer>()
    const late = setTimeout(() => reject(tooCostly('takes too long')), this.#orderMs)
    const failed = (error: unknown) => {
      const isMemory = error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY'
      reject(isMemory ? tooCostly('takes too much memory') : new Fault(`the PGP thread failed: ${messageOf(error)}`))
    }
    const ended = () => failed(new Error('it has ended'))
    worker.on('message', resolve).on('error', failed).on('exit', ended)
    try {
      worker.postMessage(order, order.plain ? [order.plain.buffer as ArrayBuffer] : [])
      const done = await promise
      this.#rest(worker)
      return done
    } catch (error) {
      this.#worker = undefined
      await worker.terminate()
      throw error
    } finally {
      clearTimeout(late)
      worker.off('message', resolve).off('error', failed).off('exit', ended)
    }
  }

  #start(): Worker {
    const worker = new Worker(new URL('./pgp-thread.ts', import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: MEMORY_MIB },
    })
    // What happens while an order runs is for who waits for it; at other times another thread is started.
    return worker.on('error', () => {
      if (this.#worker === worker) this.#worker = undefined
    })
  }

  #rest(worker: Worker): void {
    worker.unref()
    this.#idle = setTimeout(() => {
      this.#worker = undefined
      void worker.terminate()
    }, this.#idleMs)
    this.#idle.unref()
  }
}

function tooCostly(why: string): Refusal {
  return new Refusal('invalid_request', `error parsing PGP key: the key ${why} to check: send a smaller one`)
}
