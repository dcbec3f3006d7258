/** The requests that are being answered, for `sys/in-flight-req`. */
import type { Call } from '../kit/operation.ts'
import type { Verb } from './request.ts'

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
  readonly #entries = new Set<Entry>()

  /** Counts a request in; what it returns counts it out. */
  enter(verb: Verb, path: string, { remote = '', requestId: id }: Call): () => void {
    const entry = { id, atMs: Date.now(), verb, path, remote }
    this.#entries.add(entry)
    return () => this.#entries.delete(entry)
  }

  /** By request ID, in the form that callers know. */
  told(): Record<string, unknown> {
    return Object.fromEntries(
      [...this.#entries].map(({ atMs, id, path, remote, verb }) => [
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
