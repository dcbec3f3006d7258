/**
 * Threads of stores, for one database or task after the other: to start a thread takes several times what it takes to open a
 * database, most of it Node's own start. A thread that has done what it was taken for waits here a while for the next thing
 * to do and does not keep the process from ending; one whose task failed is ended instead.
 */
import { Worker } from 'node:worker_threads'

/** More than one only where several things are done at once. */
const WAITING_MAX = 4
/** A waiting thread takes memory, so one that is not taken within this time is ended. */
const WAITING_MS = 10_000

interface Waiting {
  readonly worker: Worker
  readonly timer: NodeJS.Timeout
}

const waiting: Waiting[] = []

/** A thread that has nothing to do. The caller listens to its messages, `error` and `exit`. */
export function takeStoreThread(): Worker {
  const found = waiting.pop()
  if (!found) return new Worker(new URL('./store-thread.ts', import.meta.url))
  const { timer, worker } = found
  clearTimeout(timer)
  forgetListeners(worker)
  worker.ref()
  return worker
}

/** Takes back a thread that has done what it was taken for. Resolves once it waits, or has ended. */
export async function returnStoreThread(worker: Worker): Promise<void> {
  forgetListeners(worker)
  if (waiting.length >= WAITING_MAX) {
    await worker.terminate()
    return
  }
  const forget = () => {
    clearTimeout(timer)
    const at = waiting.findIndex((each) => each.worker === worker)
    if (at >= 0) waiting.splice(at, 1)
  }
  const timer = setTimeout(() => {
    forget()
    void worker.terminate()
  }, WAITING_MS).unref()
  worker.on('error', forget).on('exit', forget)
  waiting.push({ worker, timer })
  worker.unref()
}

/** Not all of all events: the class has listeners of its own. */
function forgetListeners(worker: Worker): void {
  for (const event of ['message', 'error', 'exit']) worker.removeAllListeners(event)
}
