/** The requests that are being answered: for `sys/in-flight-req`, and so that many of them leave room for others. */
import type { Call } from '../../platform/operation.ts'
import { PassingMap } from '../../platform/passing.ts'
import { type SchedulerQueue, scheduler } from '../../platform/scheduler.ts'
import type { Verb } from './request.ts'

/** Requests under way that need no pace: together they take no more of the thread than others can wait for. */
const UNPACED_MAX = 8

interface Entry {
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
  /** By a count. */
  readonly #entries = new PassingMap<number, Entry>()
  #count = 0
  /** Requests that wait to begin. */
  readonly #line: SchedulerQueue

  constructor(line: SchedulerQueue = scheduler.queue()) {
    this.#line = line
  }

  /** While many are under way, what the next one has to wait for; nobody overtakes those that wait already. */
  turn(): Promise<void> | undefined {
    const isFree = this.#entries.size < UNPACED_MAX && !this.#line.hasWork
    return isFree ? undefined : this.#line.enter()
  }

  /** Counts a request in; what it returns counts it out. */
  enter(verb: Verb, path: string, { remote = '', requestId: id }: Call): () => void {
    const place = ++this.#count
    this.#entries.set(place, { id, atMs: Date.now(), verb, path, remote })
    return () => this.#entries.delete(place)
  }

  /** By request ID, in the form that callers know. */
  told(): Record<string, unknown> {
    return Object.fromEntries(
      Array.from(this.#entries.values(), ({ atMs, id, path, remote, verb }) => [
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
