/** A request as its operation sees it. */
import { type IncomingCall, type Identity, NOBODY } from '../platform/operation.ts'
import type { RawInput } from '../platform/schema.ts'
import { plainAddress } from './connections.ts'

/** What a call is asked of its exchange for, when it is looked at. */
interface Exchanged {
  readonly requestId: string
  readonly remote: string | undefined
  /** Both are created on first use. */
  readonly signal: AbortSignal
  readonly draining: AbortSignal
  readonly body: AsyncIterable<Uint8Array>
}

export class OperationCall implements IncomingCall {
  /** Of the last check of its rights. */
  identity: Identity = NOBODY
  readonly raw: RawInput
  readonly token: string | undefined
  readonly hops = 0
  readonly #exchange: Exchanged

  constructor(exchange: Exchanged, raw: RawInput, token: string | undefined) {
    this.#exchange = exchange
    this.raw = raw
    this.token = token
  }

  get requestId(): string {
    return this.#exchange.requestId
  }

  get remote(): string | undefined {
    const { remote } = this.#exchange
    return remote === undefined ? undefined : plainAddress(remote)
  }

  get signal(): AbortSignal {
    return this.#exchange.signal
  }

  get draining(): AbortSignal {
    return this.#exchange.draining
  }

  get body(): AsyncIterable<Uint8Array> {
    return this.#exchange.body
  }
}
