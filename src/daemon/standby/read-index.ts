/**
 * The read index of a standby, as ReadIndex in Raft: the newest row of the active server, which a read must include. Requests that arrive
 * while one is in flight share the next one, which is sent after all of them have arrived: the row includes everything that was
 * acknowledged before any of them.
 */
import type { ActiveRows } from '../../ha/active-rows.ts'
import type { RawInput } from '../../platform/schema.ts'

export interface ConfirmedRows extends ActiveRows {
  /** When they were requested, by the monotonic clock. */
  readonly requestedAtMs: number
}

export class ReadIndex {
  /** Resolves to undefined if no active server responds. Must not reject. */
  readonly #requestRows: () => Promise<ActiveRows | undefined>
  #inFlight: Promise<ConfirmedRows | undefined> | undefined
  /** The request after the one in flight. */
  #next: Promise<ConfirmedRows | undefined> | undefined

  constructor(requestRows: () => Promise<ActiveRows | undefined>) {
    this.#requestRows = requestRows
  }

  request(): Promise<ConfirmedRows | undefined> {
    if (!this.#inFlight) return (this.#inFlight = this.#send())
    this.#next ??= this.#inFlight.then(() => {
      this.#next = undefined
      return (this.#inFlight = this.#send())
    })
    return this.#next
  }

  async #send(): Promise<ConfirmedRows | undefined> {
    const requestedAtMs = performance.now()
    const rows = await this.#requestRows()
    // Before any caller continues: its next read needs a new request.
    if (!this.#next) this.#inFlight = undefined
    return rows && { ...rows, requestedAtMs }
  }
}

// What a client requires of the state that it reads: `X-Vault-Index` of Vault's clients, and `Cache-Control: max-age` (RFC 9111, 5.2.1.1).
const VERSION = 'v1'
const MAX_AGE = /(?:^|[,\s])max-age=(\d{1,9})(?:$|[,\s])/

/** The header `X-Vault-Index` for a state: the clients compare its numbers and send it back. */
export function stateHeader(clusterId: string, row: number): string {
  return Buffer.from(`${VERSION}:${clusterId}:${row}:0:`).toString('base64')
}

/** Row of the log that the response must include; undefined if the client does not require one of this cluster. */
export function requiredRow({ headers }: RawInput, clusterId: string): number | undefined {
  const header = headers['x_vault_index']
  if (!header) return undefined
  const states = header.split(',').flatMap((text) => stateOf(text.trim(), clusterId) ?? [])
  return states.length > 0 ? Math.max(...states) : undefined
}

function stateOf(text: string, clusterId: string): number | undefined {
  const [version, cluster, row, ...rest] = Buffer.from(text, 'base64').toString('latin1').split(':')
  const isOurs = version === VERSION && cluster === clusterId && rest.length === 2 && /^\d{1,15}$/.test(row ?? '')
  return isOurs ? Number(row) : undefined
}

/** Milliseconds; undefined if the client does not accept an older state. */
export function requiredAge({ headers }: RawInput): number | undefined {
  const [, seconds] = MAX_AGE.exec(headers['cache_control'] ?? '') ?? []
  const ageMs = Number(seconds ?? 0) * 1000
  return ageMs > 0 ? ageMs : undefined
}
