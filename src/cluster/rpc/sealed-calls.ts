/**
 * The serving end of sealed calls: opens the envelopes of requests, each once, and seals what comes of them.
 *
 * A request that is sent again is refused. What was heard is remembered for each session (a caller's key) as long as its
 * requests are fresh by this server's own clock, which callers know from its announcements: the clocks of two hosts are
 * never compared. Memory is bounded: so many sessions in all, and for each name that NATS lets a caller speak under.
 */
import { TokenBuckets } from '../../platform/token-bucket.ts'
import {
  type CurveKey,
  ENVELOPE_BYTES,
  openMessage,
  openRequest,
  type RefusedReason,
  requestHead,
  sealMessage,
  type SessionKeys,
} from '../trust/envelope.ts'
import type { Link, Message } from '../nats/link.ts'
import type { AnswerChannel } from './served-call.ts'
import type { ServerKeys } from '../trust/server-trust.ts'
import { lastParts } from '../nats/subjects.ts'

/** A request may be so old: it waits for the connection, or for this process to wake up. */
const AGE_MAX_MS = 120_000
/** What the caller knows of our clock is late by what the announcement took. */
const AHEAD_MAX_MS = 30_000
/** Nothing that was sealed in a session is fresh any more when it has been quiet for this long. */
const SESSION_MS = AGE_MAX_MS + 2 * AHEAD_MAX_MS
const SWEEP_MS = 10_000
const SESSIONS_MAX = 32_768
/** A process has one, and another after each restart. */
const CALLER_SESSIONS_MAX = 16
/** New keys of a caller a second and at once: each costs a tenth of a millisecond before anything of it is proved. */
const NEW_KEYS = { perSecond: 1, capacity: 64 }
/** Calls may overtake each other by so much. */
const WINDOW = 1024

interface Session {
  readonly keys: SessionKeys
  readonly caller: string
  /** Numbers of calls above `newest - WINDOW` that have been served. */
  readonly served: Set<number>
  newest: number
  usedAtMs: number
}

export interface SealedCallsOptions {
  readonly link: Link
  readonly curve: CurveKey
  /** Who the servers are, for calls that servers only may make; absent where everybody may. */
  readonly servers?: Pick<ServerKeys, 'hasCurveKey' | 'ask'>
}

export interface OpenedCall {
  readonly payload: Uint8Array
  readonly channel: AnswerChannel
}

export class SealedCalls {
  readonly #options: SealedCallsOptions
  readonly #sessions = new Map<string, Session>()
  readonly #ofCaller = new Map<string, number>()
  readonly #newKeys = new TokenBuckets({ ...NEW_KEYS, now: () => performance.now() })
  #sweptAtMs = 0

  constructor(options: SealedCallsOptions) {
    this.#options = options
  }

  /** The call, or why it is refused; the last part of its subject is the caller. */
  open(message: Message): OpenedCall | RefusedReason {
    const { payload, subject, reply } = message
    const { servers, link } = this.#options
    const head = requestHead(payload)
    if (!head) return 'malformed'
    if (servers && !servers.hasCurveKey(head.callerKey)) return 'no server'
    const ageMs = performance.now() - head.clockMs
    if (ageMs > AGE_MAX_MS || ageMs < -AHEAD_MAX_MS) return 'too old'
    const name = Buffer.from(head.callerKey).toString('base64')
    const known = this.#sessions.get(name)
    const session = known ?? this.#begin(head.callerKey, lastParts(subject, 1))
    if (typeof session === 'string') return session
    const opened = openRequest(session.keys.toServer, head, { subject, reply }, payload)
    if (!opened) return 'wrong key'
    if (!known) this.#keep(name, session)
    if (!isFirst(session, head.call)) return 'sent before'
    return { payload: opened, channel: channelOf(link, reply, session.keys, head.call) }
  }

  /** Asks who the servers are; true when one has answered, so that a call may be taken that was not. */
  async learn(): Promise<boolean> {
    return (await this.#options.servers?.ask()) ?? false
  }

  #begin(callerKey: Uint8Array, caller: string): Session | RefusedReason {
    this.#sweep()
    const isFull = this.#sessions.size >= SESSIONS_MAX || (this.#ofCaller.get(caller) ?? 0) >= CALLER_SESSIONS_MAX
    if (isFull || !this.#newKeys.take(caller, 1)) return 'too many callers'
    try {
      const keys = this.#options.curve.sessionWithCaller(callerKey)
      return { keys, caller, served: new Set(), newest: 0, usedAtMs: performance.now() }
    } catch {
      return 'malformed'
    }
  }

  #keep(name: string, session: Session): void {
    this.#sessions.set(name, session)
    this.#ofCaller.set(session.caller, (this.#ofCaller.get(session.caller) ?? 0) + 1)
  }

  #sweep(): void {
    const nowMs = performance.now()
    if (nowMs - this.#sweptAtMs < SWEEP_MS) return
    this.#sweptAtMs = nowMs
    this.#newKeys.sweep()
    for (const [name, { caller, usedAtMs }] of this.#sessions) {
      if (nowMs - usedAtMs < SESSION_MS) continue
      this.#sessions.delete(name)
      const left = (this.#ofCaller.get(caller) ?? 1) - 1
      if (left > 0) this.#ofCaller.set(caller, left)
      else this.#ofCaller.delete(caller)
    }
  }
}

/** Counts the call; false when it was served before, or is older than what is remembered. */
function isFirst(session: Session, call: number): boolean {
  const { served, newest } = session
  if (call <= newest - WINDOW || served.has(call)) return false
  served.add(call)
  session.newest = Math.max(newest, call)
  session.usedAtMs = performance.now()
  if (served.size > 2 * WINDOW) for (const each of served) if (each <= session.newest - WINDOW) served.delete(each)
  return true
}

function channelOf(link: Link, reply: string, keys: SessionKeys, call: number): AnswerChannel {
  let sent = 0
  let heard = 0
  return {
    get payloadBytesMax() {
      return link.payloadBytesMax - ENVELOPE_BYTES
    },
    send(payload, rest) {
      const parts = rest ? [payload, rest] : [payload]
      link.publish(reply, sealMessage(keys.toCaller, { kind: 'answer', call, message: ++sent }, parts))
    },
    openControl(payload) {
      const opened = openMessage(keys.toServer, { kind: 'control', call }, payload)
      // Credit that is lost is said again; what was said before it counts no more.
      if (!opened || opened.message <= heard) return undefined
      heard = opened.message
      return opened.payload
    },
  }
}
