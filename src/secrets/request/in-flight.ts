/** The requests in flight: for `sys/in-flight-req`, and to yield to other work of the process while there are many. */
import type { Call } from '../../platform/operation.ts'
import { TransientMap } from '../../platform/transient-map.ts'
import { type SchedulerQueue, scheduler } from '../../platform/scheduler.ts'
import type { Verb } from './parse-request.ts'

/** Up to this number, requests do not pass through the scheduler: together they block the thread for a short time only. */
const UNSCHEDULED_MAX = 8

interface InFlightRequest {
  readonly id: string
  readonly atMs: number
  readonly verb: Verb
  readonly path: string
  readonly remote: string
}

const METHODS: Readonly<Record<Verb, string>> = {
  read: 'GET',
  help: 'GET',
  list: 'LIST',
  scan: 'SCAN',
  write: 'POST',
  patch: 'PATCH',
  delete: 'DELETE',
}

export class InFlight {
  /** By a sequence number. */
  readonly #requests = new TransientMap<number, InFlightRequest>()
  #sequence = 0
  /** Requests that wait to start. */
  readonly #queue: SchedulerQueue

  constructor(queue: SchedulerQueue = scheduler.queue()) {
    this.#queue = queue
  }

  /** Number of requests in progress. */
  get count(): number {
    return this.#requests.size
  }

  /** While many requests are in flight, a promise that the next request must await, in arrival order. */
  admit(): Promise<void> | undefined {
    const isFree = this.#requests.size < UNSCHEDULED_MAX && !this.#queue.hasWork
    return isFree ? undefined : this.#queue.enter()
  }

  /** Adds a request; the returned function removes it. */
  enter(verb: Verb, path: string, { remote = '', requestId: id }: Call): () => void {
    const sequence = ++this.#sequence
    this.#requests.set(sequence, { id, atMs: Date.now(), verb, path, remote })
    return () => this.#requests.delete(sequence)
  }

  /** By request ID, as in the response of `sys/in-flight-req`. */
  list(): Record<string, unknown> {
    return Object.fromEntries(
      Array.from(this.#requests.values(), ({ atMs, id, path, remote, verb }) => [
        id,
        {
          start_time: new Date(atMs).toISOString(),
          client_remote_address: remote,
          request_path: `/v1/${path}`,
          request_method: METHODS[verb],
          client_id: '',
        },
      ]),
    )
  }
}
