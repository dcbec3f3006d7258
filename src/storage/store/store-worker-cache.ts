/**
 * Worker threads of stores, reused for one database or task after another: starting a thread takes several times as long as opening a
 * database, mostly for the start of Node. An idle worker does not keep the process running. A worker whose task failed is terminated.
 *
 * `platform/worker-pool.ts` is not used, because the writer of a database is not a task with one response: it owns its thread until the
 * database is closed.
 */
import { Worker } from 'node:worker_threads'
import { Fault, messageOf } from '../../platform/errors.ts'
import type { WriterSettings } from './writer-thread.ts'

/** Idle workers that are kept. */
const IDLE_MAX = 4
/** An idle worker takes memory, so it is terminated after this time. */
const IDLE_TIMEOUT_MS = 10_000

interface IdleWorker {
  readonly worker: Worker
  readonly timer: NodeJS.Timeout
}

const idle: IdleWorker[] = []

/** Returns an idle or a new worker. The caller listens to its events `message`, `error` and `exit`. */
export function acquireStoreWorker(): Worker {
  const reused = idle.pop()
  if (!reused) return new Worker(new URL('./store-worker.ts', import.meta.url), { name: 'outpost-writer' })
  const { timer, worker } = reused
  clearTimeout(timer)
  removeListeners(worker)
  worker.ref()
  return worker
}

/** Resolves once the worker is idle or has ended. */
export async function releaseStoreWorker(worker: Worker): Promise<void> {
  removeListeners(worker)
  if (idle.length >= IDLE_MAX) {
    await worker.terminate()
    return
  }
  const drop = () => {
    clearTimeout(timer)
    const at = idle.findIndex((each) => each.worker === worker)
    if (at >= 0) idle.splice(at, 1)
  }
  const timer = setTimeout(() => {
    drop()
    void worker.terminate()
  }, IDLE_TIMEOUT_MS).unref()
  worker.on('error', drop).on('exit', drop)
  idle.push({ worker, timer })
  worker.unref()
}

/** Only of these events: Worker has internal listeners for others. */
function removeListeners(worker: Worker): void {
  for (const event of ['message', 'error', 'exit']) worker.removeAllListeners(event)
}

/** Resolves once the database is open. Rejects with a Fault for the operator. */
export async function startWriter(settings: WriterSettings): Promise<Worker> {
  const worker = acquireStoreWorker()
  await new Promise<void>((resolve, reject) => {
    worker.once('message', () => resolve())
    worker.once('error', (error) => reject(new Fault(messageOf(error), { cause: error })))
    worker.once('exit', () => reject(new Fault(`the writer of ${settings.path} exited`)))
    worker.postMessage(settings, [])
  })
  return worker
}
