/**
 * Checks PGP keys, and encrypts to them, in a worker thread (`platform/worker-pool.ts`): a key can be made to cost minutes of
 * computation. One task runs at a time. A task that takes too long or too much memory is refused as a fault of its key.
 */
import { Fault, Refusal } from '../../platform/errors.ts'
import { WorkerPool, WorkerTaskError } from '../../platform/worker-pool.ts'
import type { PgpRequest, PgpResponse, PgpResult } from './pgp-thread.ts'

export interface PgpWorkerOptions {
  /** For one task, the start of the thread included. */
  readonly taskTimeoutMs?: number
  readonly idleTimeoutMs?: number
}

/** A common key takes some milliseconds; loading the library some hundred, more on a busy machine. */
const TASK_TIMEOUT_MS = 20_000
const IDLE_TIMEOUT_MS = 10_000
const HEAP_MAX_MIB = 256
/** `pgp.ts` limits the requests that check keys; each has one task queued at a time. */
const QUEUE_MAX = 256

export class PgpWorker {
  readonly #pool: WorkerPool<PgpRequest, PgpResponse>

  constructor({ idleTimeoutMs = IDLE_TIMEOUT_MS, taskTimeoutMs = TASK_TIMEOUT_MS }: PgpWorkerOptions = {}) {
    this.#pool = new WorkerPool({
      name: 'PGP',
      url: new URL('./pgp-thread.ts', import.meta.url),
      workersMax: 1,
      queueMax: QUEUE_MAX,
      taskTimeoutMs,
      idleTimeoutMs,
      heapMaxMib: HEAP_MAX_MIB,
    })
  }

  /** Takes ownership of `plain`. Rejects with a Refusal where the key cannot be used or costs too much. */
  async run(request: PgpRequest): Promise<PgpResult> {
    const transfer = request.plain ? [request.plain.buffer as ArrayBuffer] : []
    const response = await this.#pool.run({ prepare: () => ({ request, transfer }) }).catch(refuse)
    if ('unfit' in response) throw new Refusal('invalid_request', `error parsing PGP key: ${response.unfit}`)
    return response
  }
}

function refuse(error: unknown): never {
  if (!(error instanceof WorkerTaskError)) throw error
  if (error.reason === 'task-timeout') throw tooCostly('takes too long')
  if (error.reason === 'out-of-memory') throw tooCostly('takes too much memory')
  if (error.reason === 'queue-full') throw new Refusal('too_many', 'too many PGP keys are being read: try again later')
  throw new Fault(error.message)
}

function tooCostly(why: string): Refusal {
  return new Refusal('invalid_request', `error parsing PGP key: the key ${why} to check: send a smaller one`)
}
