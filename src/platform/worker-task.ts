/** The worker's side of `worker-pool.ts`: serves the tasks that the pool sends to this thread, one after another. */
import { readlinkSync } from 'node:fs'
import { getPriority, setPriority } from 'node:os'
import { basename } from 'node:path'
import { parentPort, type Transferable } from 'node:worker_threads'
import { messageOf } from './errors.ts'

export interface TaskMessage<Request> {
  readonly id: number
  readonly request: Request
}

export type TaskAnswer<Response> =
  | { readonly id: number; readonly response: Response }
  /** The handler threw; the text is for the log. */
  | { readonly id: number; readonly failure: string }

/** The nice(2) value of the lowest priority. */
const NICENESS_MAX = 19

/**
 * Registers the handler of this thread's tasks. `transferOf` names the buffers of a response that are moved to the main thread
 * and not copied.
 */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the type of the messages: without it, `handle` takes unknown
export function serveTasks<Request, Response>(
  handle: (request: Request) => Response | Promise<Response>,
  transferOf: (response: Response) => Transferable[] = () => [],
): void {
  const answer = async ({ id, request }: TaskMessage<Request>): Promise<void> => {
    try {
      const response = await handle(request)
      parentPort?.postMessage({ id, response } satisfies TaskAnswer<Response>, transferOf(response))
    } catch (error) {
      parentPort?.postMessage({ id, failure: messageOf(error) } satisfies TaskAnswer<Response>, [])
    }
  }
  let last: Promise<void> = Promise.resolve()
  parentPort?.on('message', (message: TaskMessage<Request>) => {
    last = last.then(() => answer(message))
  })
}

/** Lowers the priority of this thread, not of the process, by `steps` of nice(2). Has no effect without /proc. */
export function lowerThreadPriority(steps: number): void {
  try {
    // On Linux each thread has a priority of its own, and this link names the thread that reads it.
    const threadId = Number(basename(readlinkSync('/proc/thread-self')))
    setPriority(threadId, Math.min(NICENESS_MAX, getPriority(threadId) + steps))
  } catch {
    // The thread keeps the priority of the process.
  }
}
