/**
 * Whom a server takes for a node. Two processes may speak for one: a state directory was copied, or a node ID given twice.
 * The server keeps to one of them, that with the key it has seen first and the latest run, and tells the other, which
 * then serves no calls: both would answer.
 */
import * as v from 'valibot'
import { packr } from '../nats/message-pack.ts'

export interface Speaker {
  /** Raw. */
  readonly publicKey: Uint8Array
  readonly run: number
  /** False once it has left or fallen silent. */
  readonly isThere: boolean
}

const schema = v.object({
  publicKey: v.instance(Uint8Array),
  run: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  isThere: v.boolean(),
})

export function encodeSpeaker(speaker: Speaker): Uint8Array {
  return packr.pack(speaker)
}

export function decodeSpeaker(payload: Uint8Array): Speaker | undefined {
  try {
    const parsed = v.safeParse(schema, packr.unpack(payload))
    return parsed.success ? parsed.output : undefined
  } catch {
    return undefined
  }
}
