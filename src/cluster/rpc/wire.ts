/**
 * Messages of a call, as bytes. Data travels bare behind five bytes of head; everything else is MessagePack, read into a
 * narrow type before anybody looks at it (calls: `call-message.ts`). A call names its version: what is newer than this
 * code is refused, not guessed.
 *
 * caller → node: `call`, then `credit`, `cancel` and `drain`. Node → caller: `head` and data and `end`, or `value`, or `error`; and
 * `alive` where nothing else is to be said. Data is numbered, and `end` and `alive` say how much of it there was, so that a
 * hole is noticed also where no more data may follow.
 */
import * as v from 'valibot'
import { packr } from '../nats/message-pack.ts'
import { Fault, REFUSAL_STATUS, type RefusalCode } from '../../platform/errors.ts'
import { JsonText, type StreamHead, WholeAnswer } from '../../platform/operation.ts'
import { type CallMessage, callOf, partsOfCall } from './call-message.ts'
import { isCount, isMap } from '../nats/decoded.ts'

/** 2: a call is a body and, towards a node, the proof of a server over it; a node gets no token. */
export const WIRE_VERSION = 2
/** First byte of a data message; no MessagePack map begins with either. What follows on `PART` belongs to the same chunk. */
const WHOLE = 1
const PART = 2
const DATA_HEAD_BYTES = 5
/**
 * Data of one message. NATS and its client read 64 KiB at a time and copy what does not fit into one read: several
 * messages in a read cost half of what one message over several reads does (bench/forward.ts).
 */
export const DATA_BYTES_MAX = 16_384

const text = v.pipe(v.string(), v.maxLength(1 << 20))
const shortText = v.pipe(v.string(), v.maxLength(8192))
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const textMap = v.record(shortText, text)
const bytes = v.custom<Uint8Array>((value) => value instanceof Uint8Array)

const controlSchema = v.variant('kind', [
  /** `taken` of the bytes are with the caller; `allowed` may have been sent in all. */
  v.object({ kind: v.literal('credit'), taken: count, allowed: count }),
  v.object({ kind: v.literal('cancel') }),
  /** The caller stops: a call that waits for a change answers at once. Older versions ignore it. */
  v.object({ kind: v.literal('drain') }),
])

/** What an answer that its operation has made whole has besides its body. */
const wholeHead = {
  status: v.pipe(count, v.minValue(200), v.maxValue(599)),
  headers: textMap,
  accessor: v.optional(shortText),
}

const codes = Object.keys(REFUSAL_STATUS) as [RefusalCode, ...RefusalCode[]]

const answerSchema = v.variant('kind', [
  v.object({
    kind: v.literal('head'),
    status: v.picklist([200, 206]),
    contentType: v.optional(shortText),
    contentLength: v.optional(count),
    headers: v.optional(textMap),
    frames: v.optional(v.boolean()),
  }),
  v.object({ kind: v.literal('value'), json: v.optional(v.string()), headers: v.optional(textMap) }),
  /** The value is the JSON text that came before as data: it is too large for one message. */
  v.object({ kind: v.literal('sent_value'), sequence: count, headers: v.optional(textMap) }),
  v.object({ kind: v.literal('whole'), ...wholeHead, body: v.optional(bytes) }),
  /** The same whose body came before as data: it is too large for one message. */
  v.object({ kind: v.literal('sent_whole'), ...wholeHead, sequence: count }),
  v.object({ kind: v.literal('refusal'), code: v.picklist(codes), message: text, headers: textMap }),
  v.object({ kind: v.literal('fault') }),
  v.object({ kind: v.literal('end'), sequence: count }),
  /** The call was made for another run of the node's process: it is to be sent again, for this one. */
  v.object({ kind: v.literal('again'), run: shortText }),
  /** What has been said before it: how many data messages, and whether the head. */
  v.object({ kind: v.literal('alive'), sequence: count, head: v.boolean() }),
])

export type ControlMessage = v.InferOutput<typeof controlSchema>
export type AnswerMessage = v.InferOutput<typeof answerSchema>
export type HeadMessage = Extract<AnswerMessage, { kind: 'head' }>
/** The last word of an answer that is no stream. */
export type ValueMessage = Extract<AnswerMessage, { kind: 'value' | 'sent_value' | 'whole' | 'sent_whole' }>

export function encode(message: CallMessage | ControlMessage | AnswerMessage): Uint8Array {
  return packr.pack('operation' in message ? partsOfCall(message) : message)
}

/** What precedes data in its message. Valid until the next is made. `isWhole`: nothing of its chunk follows. */
export function dataHead(sequence: number, isWhole: boolean): Uint8Array {
  head[0] = isWhole ? WHOLE : PART
  head.writeUInt32BE(sequence % 2 ** 32, 1)
  return head
}

const head = Buffer.alloc(DATA_HEAD_BYTES)

export interface DataMessage {
  readonly sequence: number
  readonly data: Uint8Array
  /** False when the next data message belongs to the same chunk. */
  readonly isLast: boolean
}

/** Undefined for a message of another kind. */
export function decodeData(payload: Uint8Array): DataMessage | undefined {
  const [kind, a, b, c, d] = payload
  if ((kind !== WHOLE && kind !== PART) || a === undefined || b === undefined || c === undefined || d === undefined) {
    return undefined
  }
  const sequence = a * 2 ** 24 + (b << 16) + (c << 8) + d
  return { sequence, data: payload.subarray(DATA_HEAD_BYTES), isLast: kind === WHOLE }
}

/** A call as it came. */
export interface ReceivedCall {
  readonly message: CallMessage
  /** The bytes that the message was read from: what a proof is about. */
  readonly body: Uint8Array
  readonly proof: Uint8Array | undefined
}

/** `body` is a call that was encoded. */
export function encodeCall(body: Uint8Array, proof?: Uint8Array): Uint8Array {
  return packr.pack({ version: WIRE_VERSION, body, ...(proof && { proof }) })
}

/** The call, or why it is none. */
export function decodeCall(payload: Uint8Array): ReceivedCall | 'newer' | 'older' | 'malformed' {
  const { body, proof, version } = mapOf(unpack(payload))
  if (!isCount(version)) return 'malformed'
  if (version !== WIRE_VERSION) return version > WIRE_VERSION ? 'newer' : 'older'
  if (!(body instanceof Uint8Array) || (proof !== undefined && !(proof instanceof Uint8Array))) return 'malformed'
  const message = callOf(unpack(body))
  return message ? { message, body, proof } : 'malformed'
}

export function decodeControl(payload: Uint8Array): ControlMessage | undefined {
  const parsed = v.safeParse(controlSchema, unpack(payload))
  return parsed.success ? parsed.output : undefined
}

export function decodeAnswer(payload: Uint8Array): AnswerMessage | undefined {
  const parsed = v.safeParse(answerSchema, unpack(payload))
  return parsed.success ? parsed.output : undefined
}

function mapOf(value: unknown): Readonly<Record<string, unknown>> {
  return isMap(value) ? value : {}
}

function unpack(payload: Uint8Array): unknown {
  try {
    return packr.unpack(payload)
  } catch {
    return undefined
  }
}

export function headOf(message: HeadMessage): StreamHead {
  const { status, contentType, contentLength, headers, frames } = message
  return {
    status: status === 206 ? 206 : 200,
    ...(contentType === undefined ? {} : { contentType }),
    ...(contentLength === undefined ? {} : { contentLength }),
    ...(headers === undefined ? {} : { headers }),
    ...(frames === undefined ? {} : { frames }),
  }
}

/** The value that a message is, or that `sent` was. Throws a Fault for an answer of another kind. */
export function valueOf(last: ValueMessage, sent: readonly Uint8Array[]): JsonText | undefined {
  if (last.kind === 'sent_value') return new JsonText(Buffer.concat(sent).toString(), last.headers)
  if (last.kind !== 'value') throw new Fault('an answer of another kind was expected')
  return last.json === undefined ? undefined : new JsonText(last.json, last.headers)
}

/** The same of an answer that its operation has made whole. */
export function wholeOf(last: ValueMessage, sent: readonly Uint8Array[]): WholeAnswer {
  if (last.kind !== 'whole' && last.kind !== 'sent_whole') throw new Fault('a server gave no whole answer')
  const body = last.kind === 'whole' ? last.body : Buffer.concat(sent)
  return new WholeAnswer(last.status, last.headers, body, last.accessor)
}
