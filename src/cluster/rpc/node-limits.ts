/**
 * Limits for the answers of nodes. A node is not trusted as a server is: an attacker may control its host.
 *
 * - Content: `restrictAnswer` removes what a node may not say in an HTTP answer from the server's own address. A node cannot
 *   set a cookie, allow other origins, set the length of the message, or send content that a browser executes.
 * - Time: `MinimumRate` ends an answer that is sent too slowly (docs/decisions/060).
 * - Memory: `UnfinishedChunks` bounds what is buffered of incomplete frames.
 */
import { Refusal } from '../../platform/errors.ts'
import { TIMINGS } from '../nats/timings.ts'
import type { AnswerMessage } from './call-wire.ts'

/** Headers that operations of nodes use, in lower case. */
const ALLOWED_HEADERS: ReadonlySet<string> = new Set([
  'accept-ranges',
  'access-control-expose-headers',
  'content-range',
  'content-security-policy',
  'retry-after',
  'x-content-type-options',
  'x-outpost-cursor',
  'x-outpost-event',
  'x-xss-protection',
])
const PLAIN_TEXT = 'text/plain; charset=utf-8'
/** Types that a browser may execute, or that may contain parts of such types. */
const ACTIVE_TYPE = /html|xml|svg|script|multipart|message\//i
const MEDIA_TYPE = /^[\w.+-]+\/[\w.+-]+(; ?[\w-]+=[\w.-]+)*$/
/** Visible ASCII and spaces: anything else is an invalid header, and would break the HTTP answer. */
const HEADER_VALUE = /^[\x20-\x7e]*$/

/** The answer without headers and types that a node may not set; undefined for answers that only servers send. */
export function restrictAnswer(answer: AnswerMessage): AnswerMessage | undefined {
  if (answer.kind === 'whole' || answer.kind === 'sent_whole') return undefined
  if (answer.kind === 'head') return { ...answer, ...safeType(answer.contentType), ...safeHeaders(answer.headers) }
  if (answer.kind === 'value' || answer.kind === 'sent_value') return { ...answer, ...safeHeaders(answer.headers) }
  if (answer.kind === 'refusal') return { ...answer, headers: safeHeaders(answer.headers).headers ?? {} }
  return answer
}

/** Without a type, a browser would guess one from the content. */
function safeType(contentType: string | undefined): { contentType: string } {
  if (contentType === undefined) return { contentType: 'application/octet-stream' }
  const isSafe = MEDIA_TYPE.test(contentType) && !ACTIVE_TYPE.test(contentType)
  return { contentType: isSafe ? contentType : PLAIN_TEXT }
}

function safeHeaders(headers: Readonly<Record<string, string>> | undefined): { headers?: Record<string, string> } {
  if (headers === undefined) return {}
  return { headers: Object.fromEntries(Object.entries(headers).filter(isSafeHeader)) }
}

function isSafeHeader([name, value]: [string, string]): boolean {
  return ALLOWED_HEADERS.has(name.toLowerCase()) && HEADER_VALUE.test(value)
}

/** 1.7 KiB/s over a period of ten minutes, which any network connection carries. */
const PERIOD_BYTES_MIN = 1 << 20
/** Periods in total: six hours of waiting. */
const PERIODS_MAX = 36

/**
 * The minimum rate of one answer, or of several that a caller reads from one node. A node that sends a message now and then is not
 * silent, and could occupy its caller for ever. Only time in which the caller waits for the node counts, so a long log and a slow
 * caller never violate the rate.
 */
export class MinimumRate {
  readonly #now: () => number
  /** Reads that wait at present, and the time since which at least one does. */
  #waitingReads = 0
  #waitingSinceMs = 0
  /** Total time waited before that. */
  #waitedMs = 0
  /** Total time waited at the start of this period, and bytes received in it. */
  #periodStartMs = 0
  #periodBytes = 0

  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  beginWait(): void {
    if (this.#waitingReads++ === 0) this.#waitingSinceMs = this.#now()
  }

  endWait(): void {
    if (--this.#waitingReads === 0) this.#waitedMs += this.#now() - this.#waitingSinceMs
  }

  received(bytes: number): void {
    this.#periodBytes += bytes
  }

  /** Must be called about once a second. */
  isViolated(): boolean {
    const waitedMs = this.#waitedMs + (this.#waitingReads > 0 ? this.#now() - this.#waitingSinceMs : 0)
    if (waitedMs > PERIODS_MAX * TIMINGS.minimumRatePeriodMs) return true
    if (waitedMs - this.#periodStartMs < TIMINGS.minimumRatePeriodMs) return false
    if (this.#periodBytes < PERIOD_BYTES_MIN) return true
    this.#periodStartMs = waitedMs
    this.#periodBytes = 0
    return false
  }
}

export function tooSlow(): Refusal {
  const minimum = `${PERIOD_BYTES_MIN >> 20} MiB in ${TIMINGS.minimumRatePeriodMs / 60_000} minutes`
  return new Refusal('no_answer', `the node is too slow: it sent less than ${minimum} of waiting`)
}

/**
 * Largest unfinished chunk that is not counted: two small reads of a host in base64. An honest host has 12 readers with larger
 * chunks (`host/files/buffers`), of less than 1 MiB each.
 */
const UNCOUNTED_BYTES = 256 * 1024
/** Bytes of unfinished chunks of one node. */
const NODE_BYTES_MAX = 32 << 20

/**
 * Memory for unfinished chunks of frames, of all calls of this process. A chunk is buffered until its end and may exceed the window
 * of its call, so credit alone does not bound it: a node that ends no chunk could fill `CHUNK_BYTES_MAX` for each of its calls.
 */
export class UnfinishedChunks {
  readonly #bytesByNode = new Map<string, number>()

  /**
   * Reserves memory for an unfinished chunk of `bytes` that has `reserved` bytes already. Returns the new reservation; undefined
   * if the node has reached its limit.
   */
  reserve(nodeId: string, bytes: number, reserved: number): number | undefined {
    const reservation = Math.max(reserved, bytes - UNCOUNTED_BYTES)
    if (reservation === reserved) return reserved
    const total = (this.#bytesByNode.get(nodeId) ?? 0) + reservation - reserved
    if (total > NODE_BYTES_MAX) return undefined
    this.#bytesByNode.set(nodeId, total)
    return reservation
  }

  release(nodeId: string, reserved: number): void {
    const left = (this.#bytesByNode.get(nodeId) ?? 0) - reserved
    if (left > 0) this.#bytesByNode.set(nodeId, left)
    else this.#bytesByNode.delete(nodeId)
  }
}
