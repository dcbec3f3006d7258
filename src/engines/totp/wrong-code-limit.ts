/**
 * The rate limit of wrong codes: a number of them for each key in a time window. Each wrong code is stored before it is answered, so
 * neither a restart nor a change of the active server allows further attempts.
 */
import * as v from 'valibot'
import { Refusal } from '../../platform/errors.ts'
import { parseRecord } from '../../platform/stored-record.ts'
import type { Put, Storage } from '../../storage/barrier/storage.ts'

/** More than typing errors need. With six digits, attempts at this rate succeed within a day with a probability of 1 in 20. */
const WRONG_CODES_MAX = 5
const WRONG_CODES_WINDOW_MS = 30_000
const WRONG = 'wrong/'

const windowSchema = v.object({ format: v.literal(1), endsAtMs: v.number(), count: v.number() })

export type WrongCodeWindow = v.InferOutput<typeof windowSchema>

/** `hash`: of the key's name. */
export function wrongCodesPath(hash: string): string {
  return WRONG + hash
}

/** The current window of a key, with queued changes. Throws a Refusal (429) once the key had too many wrong codes in it. */
export function checkWrongCodes(storage: Storage, hash: string, nowMs: number): WrongCodeWindow | undefined {
  const entry = storage.pending(wrongCodesPath(hash))
  const window = entry && parseRecord(windowSchema, entry, 'the wrong codes of a TOTP key')
  if (!window || window.endsAtMs <= nowMs) return undefined
  if (window.count < WRONG_CODES_MAX) return window
  const seconds = Math.ceil((window.endsAtMs - nowMs) / 1000)
  throw new Refusal('too_many', `too many wrong codes for this key, try again in ${seconds} seconds`, {
    'Retry-After': String(seconds),
  })
}

/** The entry after one more wrong code. */
export function wrongCodePut(hash: string, known: WrongCodeWindow | undefined, nowMs: number): Put {
  const window: WrongCodeWindow = known
    ? { ...known, count: known.count + 1 }
    : { format: 1, endsAtMs: nowMs + WRONG_CODES_WINDOW_MS, count: 1 }
  return { path: wrongCodesPath(hash), value: Buffer.from(JSON.stringify(window)) }
}
