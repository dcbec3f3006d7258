/**
 * Messages of a call. Data has a head of five bytes; everything else is MessagePack, parsed into a narrow type before use (calls:
 * `call-message.ts`). A call names its version: a newer version is refused.
 *
 * Caller → node: `call`, then `body`, `credit`, `cancel` and `drain`. Node → caller: `head`, data and `end`, or `value`, or `error`; and
 * `alive` as a keepalive. Data messages are numbered, and `end` and `alive` contain their number, so that a gap is detected also
 * if no more data follows.
 */
import * as v from 'valibot'
import { Fault, REFUSAL_STATUS, type RefusalCode } from '../../platform/errors.ts'
import { JsonText, type StreamHead, WholeAnswer } from '../../platform/operation.ts'
import { isCount, isMap, packr, unpack, unpackAs } from '../nats/message-pack.ts'
import { type CallMessage, decodeCallMessage, encodeCallMessage } from './call-message.ts'

/** Version 2: a call is a body and, to a node, a server's proof over it; a node receives no token. */
export const WIRE_VERSION = 2
/** First byte of a data message; no MessagePack map begins with either. The message after a `PART` belongs to the same chunk. */
const WHOLE = 1
const PART = 2
const DATA_HEAD_BYTES = 5
/**
 * Data of one message. NATS and its client read 64 KiB at a time and copy what does not fit into one read: several messages in
 * one read cost half as much as one message over several reads (bench/forward.ts).
 */
export const DATA_BYTES_MAX = 16_384

const text = v.pipe(v.string(), v.maxLength(1 << 20))
const shortText = v.pipe(v.string(), v.maxLength(8192))
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const textMap = v.record(shortText, text)
const bytes = v.custom<Uint8Array>((value) => value instanceof Uint8Array)

const controlSchema = v.variant('kind', [
  /** Total bytes that the caller has taken, and that the node may send. */
  v.object({ kind: v.literal('credit'), taken: count, allowed: count }),
  v.object({ kind: v.literal('cancel') }),
  /** A part of the body of the request, see `call-body.ts`. */
  v.object({ kind: v.literal('body'), sequence: count, bytes, isLast: v.boolean() }),
  /** The caller stops: a blocking query answers at once. Older versions ignore it. */
  v.object({ kind: v.literal('drain') }),
])

/** A `WholeAnswer` without its body. */
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
    accessor: v.optional(shortText),
  }),
  v.object({ kind: v.literal('value'), json: v.optional(v.string()), headers: v.optional(textMap) }),
  /** The value is the JSON text that was sent as data, because it is too large for one message. */
  v.object({ kind: v.literal('sent_value'), sequence: count, headers: v.optional(textMap) }),
  v.object({ kind: v.literal('whole'), ...wholeHead, body: v.optional(bytes) }),
  /** The body was sent as data, because it is too large for one message. */
  v.object({ kind: v.literal('sent_whole'), ...wholeHead, sequence: count }),
  /** Total bytes of the body that the caller may send. */
  v.object({ kind: v.literal('body_credit'), allowed: count }),
  v.object({ kind: v.literal('refusal'), code: v.picklist(codes), message: text, headers: textMap }),
  v.object({ kind: v.literal('fault') }),
  v.object({ kind: v.literal('end'), sequence: count }),
  /** The assertion names another run of the node's process: the call must be sent again for this one. */
  v.object({ kind: v.literal('again'), run: shortText }),
  /** Keepalive: number of data messages sent, and whether the head was sent. */
  v.object({ kind: v.literal('alive'), sequence: count, head: v.boolean() }),
])

export type ControlMessage = v.InferOutput<typeof controlSchema>
export type AnswerMessage = v.InferOutput<typeof answerSchema>
export type HeadMessage = Extract<AnswerMessage, { kind: 'head' }>
/** The last message of an answer that is not a stream. */
export type ValueMessage = Extract<AnswerMessage, { kind: 'value' | 'sent_value' | 'whole' | 'sent_whole' }>

export function encode(message: CallMessage | ControlMessage | AnswerMessage): Uint8Array {
  return packr.pack('operation' in message ? encodeCallMessage(message) : message)
}

/** Head of a data message; valid until the next call. `isWhole`: the chunk ends with this message. */
export function dataHead(sequence: number, isWhole: boolean): Uint8Array {
  head[0] = isWhole ? WHOLE : PART
  head.writeUInt32BE(sequence % 2 ** 32, 1)
  return head
}

const head = Buffer.alloc(DATA_HEAD_BYTES)

export interface DataMessage {
  readonly sequence: number
  readonly data: Uint8Array
  /** False if the next data message belongs to the same chunk. */
  readonly isLast: boolean
}

/** Undefined for another kind of message. */
export function decodeData(payload: Uint8Array): DataMessage | undefined {
  const [kind, a, b, c, d] = payload
  if ((kind !== WHOLE && kind !== PART) || a === undefined || b === undefined || c === undefined || d === undefined) {
    return undefined
  }
  const sequence = a * 2 ** 24 + (b << 16) + (c << 8) + d
  return { sequence, data: payload.subarray(DATA_HEAD_BYTES), isLast: kind === WHOLE }
}

/** A decoded call. */
export interface ReceivedCall {
  readonly message: CallMessage
  /** The encoded message, which the proof authenticates. */
  readonly body: Uint8Array
  readonly proof: Uint8Array | undefined
}

/** `body` is an encoded call. */
export function encodeCall(body: Uint8Array, proof?: Uint8Array): Uint8Array {
  return packr.pack({ version: WIRE_VERSION, body, ...(proof && { proof }) })
}

/** The call, or the reason why it is refused. */
export function decodeCall(payload: Uint8Array): ReceivedCall | 'newer' | 'older' | 'malformed' {
  const { body, proof, version } = mapOf(unpack(payload))
  if (!isCount(version)) return 'malformed'
  if (version !== WIRE_VERSION) return version > WIRE_VERSION ? 'newer' : 'older'
  if (!(body instanceof Uint8Array) || (proof !== undefined && !(proof instanceof Uint8Array))) return 'malformed'
  const message = decodeCallMessage(unpack(body))
  return message ? { message, body, proof } : 'malformed'
}

export function decodeControl(payload: Uint8Array): ControlMessage | undefined {
  return unpackAs(controlSchema, payload)
}

export function decodeAnswer(payload: Uint8Array): AnswerMessage | undefined {
  return unpackAs(answerSchema, payload)
}

function mapOf(value: unknown): Readonly<Record<string, unknown>> {
  return isMap(value) ? value : {}
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

/** The value in the last message, or in the data before it. Throws a Fault for another kind of answer. */
export function valueOf(last: ValueMessage, data: readonly Uint8Array[]): JsonText | undefined {
  if (last.kind === 'sent_value') return new JsonText(Buffer.concat(data).toString(), last.headers)
  if (last.kind !== 'value') throw new Fault('expected a value in the response of a process')
  return last.json === undefined ? undefined : new JsonText(last.json, last.headers)
}

/** The `WholeAnswer` in the last message, with its body from there or from the data before it. */
export function wholeOf(last: ValueMessage, data: readonly Uint8Array[]): WholeAnswer {
  if (last.kind !== 'whole' && last.kind !== 'sent_whole') throw new Fault('expected a complete response from a server')
  const body = last.kind === 'whole' ? last.body : Buffer.concat(data)
  return new WholeAnswer(last.status, last.headers, body, last.accessor)
}
