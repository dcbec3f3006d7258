/**
 * The calling end of sealed calls: which server is asked, and the envelopes that only this one opens
 * (docs/decisions/027).
 */
import type { Logger } from '../../platform/log.ts'
import { Refusal } from '../../platform/errors.ts'
import { RateLimitedLogger } from '../../platform/rate-limited-log.ts'
import {
  type Addressed,
  type CurveKey,
  decodeRefused,
  openMessage,
  type RefusedReason,
  sealMessage,
  sealRequest,
  type SessionKeys,
} from '../trust/envelope.ts'
import type { KnownServer, ServerKeys } from '../trust/server-trust.ts'
import { ANY, type Group } from '../nats/subjects.ts'

/** For a server to be heard where none is known: a process that has just begun. */
const FIND_MS = 1500
const SESSIONS_MAX = 256

const REASONS: Readonly<Record<RefusedReason, string>> = {
  malformed: 'the call did not reach the server as it was sent',
  'wrong key': 'the server could not open the call, which was made for another key or changed on its way',
  'too old': 'the call reached the server too late',
  'sent before': 'the call reached the server twice',
  'too many callers': 'the server has as many callers as may be',
  'no server': 'the server takes this call from servers only, and does not know the key of this process as one',
}

export interface ServerCallsOptions {
  readonly keys: ServerKeys
  readonly curve: CurveKey
  readonly logger: Logger
}

export class ServerCalls {
  readonly #options: ServerCallsOptions
  /** By the server's key. */
  readonly #sessions = new Map<string, SessionKeys>()
  /** Of calls to all servers: a number is never used twice with one key, also when a session was forgotten meanwhile. */
  #count = 0
  readonly #complaints: RateLimitedLogger

  constructor(options: ServerCallsOptions) {
    this.#options = options
    this.#complaints = new RateLimitedLogger(options.logger)
  }

  /** Any server of the group but those that were tried. Rejects with a Refusal when none is heard of within a moment. */
  async pick(group: Group, tried: ReadonlySet<string>): Promise<KnownServer> {
    const { keys } = this.#options
    const endMs = performance.now() + FIND_MS
    for (;;) {
      const servers = keys.servers(group === 'core').filter(({ serverId }) => !tried.has(serverId))
      const picked = servers[Math.floor(Math.random() * servers.length)]
      if (picked) return picked
      if (performance.now() > endMs || !(await keys.ask())) break
    }
    const text =
      group === ANY ? 'no server is connected, try again' : 'no server with the secrets core is connected, try again'
    throw new Refusal('unavailable', text)
  }

  forget(serverId: string): void {
    this.#options.keys.forget(serverId)
  }

  /** @throws Refusal when the server's key is no key to encrypt to. */
  seal({ curveKey, clockMs, heardAtMs }: KnownServer, to: Addressed, payload: Uint8Array): SealedCall {
    const keys = this.#session(curveKey)
    const call = ++this.#count
    const head = {
      callerKey: this.#options.curve.publicKey,
      call,
      clockMs: clockMs + performance.now() - heardAtMs,
    }
    const request = sealRequest(keys.toServer, head, to, payload)
    return new SealedCall(request, keys, call, this)
  }

  #session(curveKey: Uint8Array): SessionKeys {
    const name = Buffer.from(curveKey).toString('base64')
    const known = this.#sessions.get(name)
    if (known) return known
    try {
      const session = this.#options.curve.sessionWithServer(curveKey)
      this.#sessions.set(name, session)
      const [oldest] = this.#sessions.keys()
      if (this.#sessions.size > SESSIONS_MAX && oldest !== undefined) this.#sessions.delete(oldest)
      return session
    } catch {
      throw new Refusal('unavailable', 'the key of the server is none to encrypt to, see its log')
    }
  }

  /** Answers that cannot be opened, or came before: said once a minute. */
  complain(reason: string): void {
    this.#complaints.warn('messages that are no answers of a server were dropped', { reason })
  }

  /** Why the server has not opened a call, for its caller. */
  refusal(reason: RefusedReason): Refusal {
    // It may have begun anew, or know other keys.
    this.#options.keys.askSoon()
    return new Refusal('unavailable', `${REASONS[reason]}, try again`)
  }
}

/** One call, sealed to one server. */
export class SealedCall {
  readonly request: Uint8Array
  readonly #keys: SessionKeys
  readonly #call: number
  readonly #calls: ServerCalls
  #sent = 0
  #heard = 0

  constructor(request: Uint8Array, keys: SessionKeys, call: number, calls: ServerCalls) {
    this.request = request
    this.#keys = keys
    this.#call = call
    this.#calls = calls
  }

  sealControl(payload: Uint8Array): Uint8Array {
    return sealMessage(this.#keys.toServer, { kind: 'control', call: this.#call, message: ++this.#sent }, [payload])
  }

  /** The next message of the answer; a Refusal ends the call; `lost`: one before it is missing; undefined: not for us. */
  open(payload: Uint8Array): Uint8Array | Refusal | 'lost' | undefined {
    const opened = openMessage(this.#keys.toCaller, { kind: 'answer', call: this.#call }, payload)
    if (!opened) {
      const reason = this.#heard === 0 ? decodeRefused(payload) : undefined
      if (reason) return this.#calls.refusal(reason)
      this.#calls.complain('wrong key, cut or changed')
      return undefined
    }
    if (opened.message <= this.#heard) {
      this.#calls.complain('sent before')
      return undefined
    }
    if (opened.message !== this.#heard + 1) return 'lost'
    this.#heard = opened.message
    return opened.payload
  }
}
