/** Stored records of a key: its parameters, and the codes that were accepted. */
import * as v from 'valibot'
import { parseRecord } from '../../platform/stored-record.ts'
import type { Put } from '../../storage/barrier/storage.ts'
import { type EngineCall, Rejection } from '../framework/engine.ts'
import { ALGORITHMS, type CodeForm } from './codes.ts'
import { NO_STEPS, type UsedSteps, usedStepsSchema } from './code-check.ts'

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

/** As in Vault's path. */
const NAME = /^\w(?:[\w.@-]{0,254}\w)?$/

/** The hash of a key's name, for its paths in the store. Throws a Rejection (400) for an invalid name. */
export function hashOf(name: string, { mount }: EngineCall): string {
  if (NAME.test(name)) return mount.secret.digest(`key\0${name}`, 'base64url')
  throw new Rejection(
    400,
    'a key name can have at most 256 characters: letters, digits and "_", and, except at the start and end, ".", "-" and "@"',
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

/** Throws a Fault for a damaged record. */
export function parsedKey(entry: Buffer): TotpKey {
  return parseRecord(keySchema, entry, 'a TOTP key')
}

export function durableKey(name: string, call: EngineCall): TotpKey | undefined {
  const entry = call.storage.get(keyPath(hashOf(name, call)))
  return entry && parsedKey(entry)
}

export function pendingKey(hash: string, { storage }: EngineCall): TotpKey | undefined {
  const entry = storage.pending(keyPath(hash))
  return entry && parsedKey(entry)
}

/** Used time steps of a key, including those in queued batches. */
export function pendingUsed(hash: string, { storage }: EngineCall): UsedSteps {
  const entry = storage.pending(usedPath(hash))
  return entry ? parseRecord(usedSchema, entry, 'the used codes of a TOTP key') : NO_STEPS
}

export function keyBytes({ key }: TotpKey): Buffer {
  return Buffer.from(key, 'base64')
}

export function formOf({ algorithm, digits, periodSeconds }: TotpKey): CodeForm {
  return { algorithm, digits, periodSeconds }
}
