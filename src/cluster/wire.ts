/**
 * Messages of a call, as bytes. Data travels bare behind five bytes of head; everything else is MessagePack, read into a
 * narrow type before anybody looks at it. A call names its version: what is newer than this code is refused, not guessed.
 *
 * caller → node: `call`, then `credit` and `cancel`. Node → caller: `head` and data and `end`, or `value`, or `error`; and
 * `alive` where nothing else is to be said. Data is numbered, so that a hole is noticed.
 */
import * as v from 'valibot'
import { Packr } from 'msgpackr'
import { REFUSAL_STATUS, type RefusalCode } from '../kit/errors.ts'
import type { StreamHead } from '../kit/operation.ts'

export const WIRE_VERSION = 1
/** First byte of a data message; no MessagePack map begins with it. */
const DATA = 1
export const DATA_HEAD_BYTES = 5
/** Deepest path of forwarding: caller to server to node, and one server more. */
export const HOPS_MAX = 3

const packr = new Packr({ useRecords: false, mapsAsObjects: true })

const text = v.pipe(v.string(), v.maxLength(1 << 20))
const shortText = v.pipe(v.string(), v.maxLength(8192))
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
/** What can stand between two dots of a subject and means nothing but itself. */
const subjectPart = v.pipe(v.string(), v.regex(/^[\w-]{1,128}$/))
const textMap = v.record(shortText, text)

const rawInput = v.object({
  params: textMap,
  query: v.pipe(v.array(v.tuple([shortText, text])), v.maxLength(256)),
  headers: textMap,
  body: v.optional(v.pipe(v.string(), v.maxLength(32 << 20))),
})

const callSchema = v.object({
  version: count,
  operation: shortText,
  input: rawInput,
  token: v.optional(shortText),
  requestId: shortText,
  hops: v.pipe(count, v.maxValue(HOPS_MAX)),
  /** Bytes that may be under way before the caller has taken any. */
  window: v.pipe(count, v.minValue(1)),
  /** Its name: the last part of the subjects of its answers, its credit and its cancel. */
  call: subjectPart,
})

const controlSchema = v.variant('kind', [
  v.object({ kind: v.literal('credit'), bytes: count }),
  v.object({ kind: v.literal('cancel') }),
])

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
  v.object({ kind: v.literal('value'), json: v.optional(v.string()) }),
  v.object({ kind: v.literal('refusal'), code: v.picklist(codes), message: text, headers: textMap }),
  v.object({ kind: v.literal('fault') }),
  v.object({ kind: v.literal('end'), sequence: count }),
  v.object({ kind: v.literal('alive') }),
  /** Who of several has taken the call, and gets its credit and cancel. */
  v.object({ kind: v.literal('taken'), server: subjectPart }),
])

export type CallMessage = v.InferOutput<typeof callSchema>
export type ControlMessage = v.InferOutput<typeof controlSchema>
export type AnswerMessage = v.InferOutput<typeof answerSchema>
export type HeadMessage = Extract<AnswerMessage, { kind: 'head' }>

export function encode(message: CallMessage | ControlMessage | AnswerMessage): Uint8Array {
  return packr.pack(message)
}

/** A data message whose `bytes` of data are still to be copied behind `DATA_HEAD_BYTES`. */
export function dataMessage(target: Buffer, sequence: number, bytes: number): Buffer {
  target.writeUInt8(DATA, 0)
  target.writeUInt32BE(sequence % 2 ** 32, 1)
  return target.subarray(0, DATA_HEAD_BYTES + bytes)
}

/** Number and bytes of a data message, or undefined when it is another one. */
export function decodeData(payload: Uint8Array): { sequence: number; data: Uint8Array } | undefined {
  if (payload[0] !== DATA || payload.length < DATA_HEAD_BYTES) return undefined
  const view = new DataView(payload.buffer, payload.byteOffset, payload.length)
  return { sequence: view.getUint32(1), data: payload.subarray(DATA_HEAD_BYTES) }
}

/** The call, or why it cannot be one. `version` is told where it could be read. */
export function decodeCall(payload: Uint8Array): CallMessage | { readonly newer: boolean; readonly call?: string } {
  const unpacked = unpack(payload)
  const parsed = v.safeParse(callSchema, unpacked)
  const version = v.safeParse(v.object({ version: count, call: v.optional(shortText) }), unpacked)
  const newer = version.success && version.output.version > WIRE_VERSION
  if (parsed.success && !newer) return parsed.output
  const call = version.success ? version.output.call : undefined
  return { newer, ...(call === undefined ? {} : { call }) }
}

export function decodeControl(payload: Uint8Array): ControlMessage | undefined {
  const parsed = v.safeParse(controlSchema, unpack(payload))
  return parsed.success ? parsed.output : undefined
}

export function decodeAnswer(payload: Uint8Array): AnswerMessage | undefined {
  const parsed = v.safeParse(answerSchema, unpack(payload))
  return parsed.success ? parsed.output : undefined
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
