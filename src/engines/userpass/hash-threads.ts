/**
 * Threads that hash passwords, of a lower priority than the rest of the process: a hash takes a processor for tens of
 * milliseconds, and whatever else wants one in that time comes first. The threads of libuv cannot be used for it, as they read
 * files for everybody. A thread begins with the first password and ends when there was none for a while.
 */
import { Worker } from 'node:worker_threads'
import { Fault, messageOf } from '../../kit/errors.ts'
import type { HashAnswer, HashOrder } from './hash-thread.ts'

const IDLE_MS = 60_000
/** Room for V8 itself and for one hash, whose memory is outside of V8's heap. */
const MEMORY_MIB = 16

/** One thread and the one hash that it may be at work on. */
class HashThread {
  readonly #worker: Worker
  readonly #onEnd: (thread: HashThread) => void
  #waiting: { resolve(key: Buffer): void; reject(error: Error): void } | undefined
  #idle: NodeJS.Timeout | undefined
  isOver = false

  constructor(onEnd: (thread: HashThread) => void) {
    this.#onEnd = onEnd
    this.#worker = new Worker(new URL('./hash-thread.ts', import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: MEMORY_MIB },
    })
    this.#worker.on('message', (answer: HashAnswer) => this.#answered(answer))
    this.#worker.on('error', (error) => this.#ended(messageOf(error)))
    this.#worker.on('exit', () => this.#ended('it has ended'))
  }

  derive(order: HashOrder): Promise<Buffer> {
    clearTimeout(this.#idle)
    this.#worker.ref()
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject }
      this.#worker.postMessage(order, [])
    })
  }

  /** It ends by itself unless there is something to do. */
  rest(): void {
    this.#worker.unref()
    this.#idle = setTimeout(() => void this.#worker.terminate(), IDLE_MS).unref()
  }

  #answered(answer: HashAnswer): void {
    const waiting = this.#waiting
    this.#waiting = undefined
    if ('key' in answer) waiting?.resolve(Buffer.from(answer.key))
    else waiting?.reject(new Fault(`a password could not be hashed: ${answer.failure}`))
  }

  #ended(why: string): void {
    clearTimeout(this.#idle)
    this.isOver = true
    this.#onEnd(this)
    const waiting = this.#waiting
    this.#waiting = undefined
    waiting?.reject(new Fault(`a password could not be hashed: its thread failed: ${why}`))
  }
}

const idle: HashThread[] = []

function forget(thread: HashThread): void {
  const at = idle.indexOf(thread)
  if (at >= 0) idle.splice(at, 1)
}

/** The key that scrypt (RFC 7914) makes of a password. How many run at a time is the caller's to bound. */
export async function derivedKey(order: HashOrder): Promise<Buffer> {
  const thread = idle.pop() ?? new HashThread(forget)
  try {
    return await thread.derive(order)
  } finally {
    if (!thread.isOver) {
      idle.push(thread)
      thread.rest()
    }
  }
}
