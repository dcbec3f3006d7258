/** What is kept of a key, where, and which of its codes were accepted. */
import * as v from 'valibot'
import { Fault } from '../../platform/errors.ts'
import type { Put } from '../../storage/barrier/storage.ts'
import { type EngineCall, Rejection } from '../framework/engine.ts'
import { ALGORITHMS, type CodeForm } from './codes.ts'
import { NO_STEPS, type UsedSteps, usedStepsSchema } from './used-steps.ts'

const keySchema = v.object({
  format: v.literal(1),
  name: v.string(),
  /** Base64. */
  key: v.string(),
  issuer: v.string(),
  account: v.string(),
  algorithm: v.picklist(ALGORITHMS),
  digits: v.picklist([6, 8]),
  periodSeconds: v.number(),
  skew: v.picklist([0, 1]),
})

const usedSchema = v.object({ format: v.literal(1), ...usedStepsSchema.entries })

export type TotpKey = v.InferOutput<typeof keySchema>

export const KEYS = 'key/'
const USED = 'used/'

/** As the compatible engine's path takes it. */
const NAME = /^\w(?:[\w.@-]{0,254}\w)?$/

/** The hidden name of a key. Throws a Rejection (400) for a name that no key can have. */
export function hashOf(name: string, { mount }: EngineCall): string {
  if (NAME.test(name)) return mount.secret.digest(`key\0${name}`, 'base64url')
  throw new Rejection(
    400,
    'the name of a key has at most 256 characters: letters, digits and "_", and between them also ".", "-" and "@"',
  )
}

export function keyPath(hash: string): string {
  return KEYS + hash
}

export function usedPath(hash: string): string {
  return USED + hash
}

export function keyPut(hash: string, key: TotpKey): Put {
  return { path: keyPath(hash), value: Buffer.from(JSON.stringify(key)) }
}

export function usedPut(hash: string, used: UsedSteps): Put {
  return { path: usedPath(hash), value: Buffer.from(JSON.stringify({ format: 1, ...used })) }
}

function parsed<T>(schema: v.GenericSchema<unknown, T>, entry: Buffer): T {
  const read = v.safeParse(v.pipe(v.string(), v.parseJson(), schema), entry.toString('utf8'))
  if (!read.success) throw new Fault('the entry of a TOTP key is damaged')
  return read.output
}

/** Throws a Fault for an entry that is damaged. */
export function parsedKey(entry: Buffer): TotpKey {
  return parsed(keySchema, entry)
}

export function durableKey(name: string, call: EngineCall): TotpKey | undefined {
  const entry = call.storage.get(keyPath(hashOf(name, call)))
  return entry && parsedKey(entry)
}

export function pendingKey(hash: string, { storage }: EngineCall): TotpKey | undefined {
  const entry = storage.pending(keyPath(hash))
  return entry && parsedKey(entry)
}

/** Which steps of the key had their code accepted, queued ones included. */
export function pendingUsed(hash: string, { storage }: EngineCall): UsedSteps {
  const entry = storage.pending(usedPath(hash))
  return entry ? parsed(usedSchema, entry) : NO_STEPS
}

export function keyBytes({ key }: TotpKey): Buffer {
  return Buffer.from(key, 'base64')
}

export function formOf({ algorithm, digits, periodSeconds }: TotpKey): CodeForm {
  return { algorithm, digits, periodSeconds }
}
