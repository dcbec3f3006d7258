/**
 * Threads of writers, for one database after the other: to start a thread takes several times what it takes to open a
 * database, most of it Node's own start. A thread whose database was closed in order waits here for the next one and does
 * not keep the process from ending; one that failed is not used again.
 */
import { Worker } from 'node:worker_threads'

/** More than one only where several databases are open at once. */
const WAITING_MAX = 2

const waiting: Worker[] = []

/** A thread that has no database. The caller listens to its messages, `error` and `exit`. */
export function takeWriterThread(): Worker {
  const worker = waiting.pop()
  if (!worker) return new Worker(new URL('./writer-thread.ts', import.meta.url))
  forgetListeners(worker)
  worker.ref()
  return worker
}

/** Takes back a thread whose database was closed. Resolves once it waits, or has ended. */
export async function returnWriterThread(worker: Worker): Promise<void> {
  forgetListeners(worker)
  if (waiting.length >= WAITING_MAX) {
    await worker.terminate()
    return
  }
  const forget = () => {
    const at = waiting.indexOf(worker)
    if (at >= 0) waiting.splice(at, 1)
  }
  worker.on('error', forget).on('exit', forget)
  waiting.push(worker)
  worker.unref()
}

/** Not all of all events: the class has listeners of its own. */
function forgetListeners(worker: Worker): void {
  for (const event of ['message', 'error', 'exit']) worker.removeAllListeners(event)
}
