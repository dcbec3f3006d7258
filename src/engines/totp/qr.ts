/**
 * QR codes for callers of the main thread. A PNG is drawn by a worker thread: the library takes 30 ms to load, a code 3 ms and
 * more, a long one some tens. The thread is started with the first code, ends after a while without any, and does not keep the
 * process from ending.
 */
import { Worker } from 'node:worker_threads'
import { Fault, messageOf, Refusal } from '../../kit/errors.ts'
import type { QrAnswer, QrOrder } from './qr-thread.ts'

const IDLE_MS = 10_000
/** About a second of work; a waiting caller costs a few hundred bytes. */
const WAITING_MAX = 256
const MEMORY_MIB = 64

interface Waiting {
  readonly resolve: (png: Buffer) => void
  readonly reject: (error: Error) => void
}

class QrWorker {
  #worker: Worker | undefined
  #idle: NodeJS.Timeout | undefined
  #lastId = 0
  readonly #waiting = new Map<number, Waiting>()

  draw(text: string, sizePixels: number): Promise<Buffer> {
    if (this.#waiting.size >= WAITING_MAX) {
      throw new Refusal('unavailable', 'too many QR codes at the moment', { 'Retry-After': '2' }, 503)
    }
    clearTimeout(this.#idle)
    const worker = (this.#worker ??= this.#start())
    worker.ref()
    const id = ++this.#lastId
    const { promise, reject, resolve } = Promise.withResolvers<Buffer>()
    this.#waiting.set(id, { resolve, reject })
    const order: QrOrder = { id, text, sizePixels }
    worker.postMessage(order, [])
    return promise
  }

  #start(): Worker {
    const worker = new Worker(new URL('./qr-thread.ts', import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: MEMORY_MIB },
    })
    worker.on('message', (answer: QrAnswer) => this.#answered(worker, answer))
    worker.on('error', (error) => this.#failed(worker, error))
    worker.on('exit', () => this.#failed(worker, new Error('it has ended')))
    return worker
  }

  #answered(worker: Worker, answer: QrAnswer): void {
    const waiting = this.#waiting.get(answer.id)
    this.#waiting.delete(answer.id)
    if (this.#waiting.size === 0) this.#rest(worker)
    if ('png' in answer) waiting?.resolve(Buffer.from(answer.png))
    else if ('unfit' in answer) waiting?.reject(new Refusal('invalid_request', answer.unfit))
    else waiting?.reject(new Fault(`the QR thread failed: ${answer.failure}`))
  }

  /** Those who wait get a fault; the next code gets another thread. */
  #failed(worker: Worker, error: unknown): void {
    if (this.#worker !== worker) return
    this.#worker = undefined
    const all = [...this.#waiting.values()]
    this.#waiting.clear()
    for (const { reject } of all) reject(new Fault(`the QR thread failed: ${messageOf(error)}`))
  }

  #rest(worker: Worker): void {
    worker.unref()
    this.#idle = setTimeout(() => {
      this.#worker = undefined
      void worker.terminate()
    }, IDLE_MS)
    this.#idle.unref()
  }
}

const qrWorker = new QrWorker()

/**
 * A PNG of exactly `sizePixels` × `sizePixels`. Rejects with a Refusal (400) where the text does not fit, and (503) where too
 * many codes are being drawn.
 */
export async function qrPng(text: string, sizePixels: number): Promise<Buffer> {
  return qrWorker.draw(text, sizePixels)
}

/** For terminals: 57 columns and 29 lines for a usual URL. Drawn on this thread, so for commands, not for servers. */
export async function qrText(text: string): Promise<string> {
  const { drawnText } = await import('./qr-code.ts')
  return drawnText(text)
}
