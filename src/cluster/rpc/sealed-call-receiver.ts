/**
 * Receiving sealed calls: opens the envelope of each request once, and seals the answer.
 *
 * A request that is sent again is refused. The numbers of received calls are stored for each session (a caller's key) while its
 * requests are fresh by this server's own clock, which callers know from its announcements: the clocks of two hosts are never
 * compared. Memory is bounded: sessions are limited in total and for each caller ID, which NATS assigns.
 */
import { TokenBuckets } from '../../platform/token-bucket.ts'
import {
  type CurveKey,
  ENVELOPE_BYTES,
  openMessage,
  openRequest,
  type EnvelopeRefusal,
  requestHead,
  sealMessage,
  type SessionKeys,
} from '../trust/envelope.ts'
import type { MessageBus, BusMessage } from '../nats/message-bus.ts'
import type { AnswerChannel } from './served-call.ts'
import type { ServerKeys } from '../trust/server-trust.ts'
import { lastParts } from '../nats/subjects.ts'

/** Largest age of a request, which may wait for the connection or for this process. */
const AGE_MAX_MS = 120_000
/** Tolerance for the delay of the announcement from which the caller knows this server's clock. */
const AHEAD_MAX_MS = 30_000
/** Time after the last call of a session when none of its requests is fresh. */
const SESSION_EXPIRY_MS = AGE_MAX_MS + 2 * AHEAD_MAX_MS
const SWEEP_MS = 10_000
const SESSIONS_MAX = 32_768
/** Sessions of one caller: a process has one, and a new one after each restart. */
const CALLER_SESSIONS_MAX = 16
/** New keys of a caller: each costs a tenth of a millisecond before it is authenticated. */
const NEW_KEYS = { perSecond: 1, capacity: 64 }
/** Calls may overtake each other by fewer calls than this. */
const WINDOW = 1024

interface CallerSession {
  readonly keys: SessionKeys
  readonly caller: string
  /** Numbers of received calls above `newest - WINDOW`. */
  readonly received: Set<number>
  newest: number
  usedAtMs: number
}

export interface SealedCallReceiverOptions {
  readonly bus: MessageBus
  readonly curve: CurveKey
  /** Present for calls that only servers may make. */
  readonly servers?: Pick<ServerKeys, 'hasCurveKey' | 'waitForAnnouncement'>
}

export interface OpenedCall {
  readonly payload: Uint8Array
  readonly channel: AnswerChannel
}

export class SealedCallReceiver {
  readonly #options: SealedCallReceiverOptions
  readonly #sessions = new Map<string, CallerSession>()
  readonly #sessionsByCaller = new Map<string, number>()
  readonly #newKeys = new TokenBuckets({ ...NEW_KEYS, now: () => performance.now() })
  #sweptAtMs = 0

  constructor(options: SealedCallReceiverOptions) {
    this.#options = options
  }

  /** The call, or the reason why it is refused. The last part of its subject is the caller. */
  open(message: BusMessage): OpenedCall | EnvelopeRefusal {
    const { payload, subject, reply } = message
    const { servers, bus } = this.#options
    const head = requestHead(payload)
    if (!head) return 'malformed'
    if (servers && !servers.hasCurveKey(head.callerKey)) return 'no server'
    const ageMs = performance.now() - head.clockMs
    if (ageMs > AGE_MAX_MS || ageMs < -AHEAD_MAX_MS) return 'too old'
    const name = Buffer.from(head.callerKey).toString('base64')
    const known = this.#sessions.get(name)
    const session = known ?? this.#newSession(head.callerKey, lastParts(subject, 1))
    if (typeof session === 'string') return session
    const opened = openRequest(session.keys.toServer, head, { subject, reply }, payload)
    if (!opened) return 'wrong key'
    if (!known) this.#store(name, session)
    if (!markReceived(session, head.call)) return 'sent before'
    return { payload: opened, channel: channelOf(bus, reply, session.keys, head.call) }
  }

  /** Requests announcements of servers. Resolves to true after one, so that a call that was refused may be opened again. */
  async learnServers(): Promise<boolean> {
    return (await this.#options.servers?.waitForAnnouncement()) ?? false
  }

  #newSession(callerKey: Uint8Array, caller: string): CallerSession | EnvelopeRefusal {
    this.#sweep()
    const isFull =
      this.#sessions.size >= SESSIONS_MAX || (this.#sessionsByCaller.get(caller) ?? 0) >= CALLER_SESSIONS_MAX
    if (isFull || !this.#newKeys.take(caller, 1)) return 'too many callers'
    try {
      const keys = this.#options.curve.sessionWithCaller(callerKey)
      return { keys, caller, received: new Set(), newest: 0, usedAtMs: performance.now() }
    } catch {
      return 'malformed'
    }
  }

  #store(name: string, session: CallerSession): void {
    this.#sessions.set(name, session)
    this.#sessionsByCaller.set(session.caller, (this.#sessionsByCaller.get(session.caller) ?? 0) + 1)
  }

  #sweep(): void {
    const nowMs = performance.now()
    if (nowMs - this.#sweptAtMs < SWEEP_MS) return
    this.#sweptAtMs = nowMs
    this.#newKeys.sweep()
    for (const [name, { caller, usedAtMs }] of this.#sessions) {
      if (nowMs - usedAtMs < SESSION_EXPIRY_MS) continue
      this.#sessions.delete(name)
      const left = (this.#sessionsByCaller.get(caller) ?? 1) - 1
      if (left > 0) this.#sessionsByCaller.set(caller, left)
      else this.#sessionsByCaller.delete(caller)
    }
  }
}

/** False for a call that was received before, or is older than the window. */
function markReceived(session: CallerSession, call: number): boolean {
  const { received, newest } = session
  if (call <= newest - WINDOW || received.has(call)) return false
  received.add(call)
  session.newest = Math.max(newest, call)
  session.usedAtMs = performance.now()
  if (received.size <= 2 * WINDOW) return true
  for (const each of received) if (each <= session.newest - WINDOW) received.delete(each)
  return true
}

function channelOf(bus: MessageBus, reply: string, keys: SessionKeys, call: number): AnswerChannel {
  let sent = 0
  let received = 0
  return {
    get payloadBytesMax() {
      return bus.payloadBytesMax - ENVELOPE_BYTES
    },
    send(payload, rest) {
      const parts = rest ? [payload, rest] : [payload]
      bus.publish(reply, sealMessage(keys.toCaller, { kind: 'answer', call, message: ++sent }, parts))
    },
    openControl(payload) {
      const opened = openMessage(keys.toServer, { kind: 'control', call }, payload)
      // Lost credit is repeated by a later message; an older message has no effect after it.
      if (!opened || opened.message <= received) return undefined
      received = opened.message
      return opened.payload
    },
  }
}
