/**
 * TOTP: time-based one-time codes. The engine is an authenticator application (it returns the current code of a key that
 * another service issued) or a provider (it generates a key for an application and validates its codes).
 *
 * Promises. A code is accepted once: its time step is durably marked as used before the response is sent, also across restarts. A key
 * is returned only by the request that generates it.
 *
 * Assumption. The system clock is right to within a period. Failure mode. Codes are guessed: wrong codes are rate-limited, also
 * across restarts (`wrong-code-limit.ts`).
 */
import { type Engine, type EngineCall, path, type Path, Rejection, type Reply } from '../framework/engine.ts'
import { text } from '../framework/fields.ts'
import { hiddenNames } from '../framework/records.ts'
import { checkCode } from './code-check.ts'
import { codeAt, otpauthUrl, stepAt } from './codes.ts'
import { checkedKey, KEY_FIELDS, KEY_NAME, type KeyInput } from './key-input.ts'
import {
  durableKey,
  formOf,
  hashOf,
  keyBytes,
  keyPath,
  keyPut,
  KEYS,
  parsedKey,
  pendingKey,
  pendingUsed,
  type TotpKey,
  usedPath,
  usedPut,
} from './key-record.ts'
import { qrPng } from './qr.ts'
import { checkWrongCodes, wrongCodePut, wrongCodesPath } from './wrong-code-limit.ts'

/** `keys/…` */
const keyPaths: readonly Path[] = [
  path({
    pattern: 'keys',
    summary: 'List the keys',
    fields: {},
    list: async (_input, call) => ({ data: { keys: await hiddenNames(call, KEYS, nameIn) } }),
  }),
  path({
    pattern: 'keys/:name',
    summary: 'Generate, import, read or delete a key',
    fields: KEY_FIELDS,
    read({ name }, call) {
      const key = durableKey(name, call)
      return key && { data: keyResponse(key) }
    },
    update: (input, call) => (input.generate ? generate(input, call) : importKey(input, call)),
    delete({ name }, call) {
      const hash = hashOf(name, call)
      return { batch: { puts: [], deletes: [keyPath(hash), usedPath(hash), wrongCodesPath(hash)] } }
    },
  }),
]

function nameIn(entry: Buffer): string {
  return parsedKey(entry).name
}

/** Without the key itself. */
function keyResponse({ account, algorithm, digits, issuer, periodSeconds }: TotpKey): Record<string, unknown> {
  return { account_name: account, algorithm, digits, issuer, period: periodSeconds }
}

/** Draws the QR code first, so that nothing is stored if that fails. */
async function generate(input: KeyInput, call: EngineCall): Promise<Reply> {
  const hash = hashOf(input.name, call)
  const key = checkedKey(input)
  const batch = { puts: [keyPut(hash, key)], deletes: [usedPath(hash)] }
  if (!input.exported) return { batch }
  const { account, issuer } = key
  const url = otpauthUrl({ issuer, account, key: keyBytes(key), form: formOf(key) })
  if (input.qr_size === 0) return { batch, data: { url } }
  const barcode = await qrPng(url, input.qr_size)
  return { batch, data: { barcode: barcode.toString('base64'), url } }
}

/** Keeps the used codes of a key that is imported again, so that they are not accepted twice. */
function importKey(input: KeyInput, call: EngineCall): Reply {
  const hash = hashOf(input.name, call)
  const key = checkedKey(input)
  const before = pendingKey(hash, call)
  const isSame = before?.key === key.key && before.periodSeconds === key.periodSeconds
  return { batch: { puts: [keyPut(hash, key)], deletes: isSame ? [] : [usedPath(hash)] } }
}

/** `code/…` */
const codePaths: readonly Path[] = [
  path({
    pattern: 'code/:name',
    summary: 'Generate or validate a code',
    fields: { ...KEY_NAME, code: text('Code to validate', { fallback: '' }) },
    read({ name }, call) {
      const key = durableKey(name, call)
      if (!key) throw unknown(name)
      const form = formOf(key)
      return { data: { code: codeAt(keyBytes(key), form, stepAt(form, call.wallMs)) } }
    },
    update: validate,
  }),
]

function unknown(name: string): Rejection {
  return new Rejection(400, `unknown key: ${name}`)
}

/** Reads and returns the batch in one step, so that of two requests with the same code one is refused. */
function validate({ code: given, name }: { readonly code: string; readonly name: string }, call: EngineCall): Reply {
  const code = given.trim()
  if (code === '') throw new Rejection(400, 'the code value is required')
  const hash = hashOf(name, call)
  const key = pendingKey(hash, call)
  if (!key) throw unknown(name)
  const window = checkWrongCodes(call.storage, hash, call.nowMs)
  const codeKey = { key: keyBytes(key), form: formOf(key), skew: key.skew }
  const decision = checkCode(code, codeKey, () => pendingUsed(hash, call), call.wallMs)
  if (decision.kind === 'wrong') {
    return { data: { valid: false }, batch: { puts: [wrongCodePut(hash, window, call.nowMs)], deletes: [] } }
  }
  if (decision.kind === 'used') throw new Rejection(400, 'code already used; wait until the next time period')
  return { data: { valid: true }, batch: { puts: [usedPut(hash, decision.after)], deletes: [] } }
}

export const totp: Engine = {
  type: 'totp',
  description: 'time-based one-time codes',
  counted: { noun: 'keys', folder: KEYS },
  paths: [...keyPaths, ...codePaths],
}
