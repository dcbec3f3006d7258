/** `code/…` of a TOTP mount: the present code of a key, and whether a code is right. */
import type { Storage } from '../../storage/barrier/storage.ts'
import { type EngineCall, path, type Path, Rejection, type Reply } from '../framework/engine.ts'
import { text } from '../framework/fields.ts'
import { codeAt, matchCode, stepAt } from './codes.ts'
import { KEY_NAME } from './key-input.ts'
import { durableKey, formOf, hashOf, keyBytes, pendingKey, pendingUsed, usedPut } from './key-record.ts'
import { isUsed, withStep } from './used-steps.ts'
import { WrongCodes } from './code-rate-limit.ts'

/** By mount: its storage is the same one in each request. */
const wrongCodes = new WeakMap<Storage, WrongCodes>()

export const codePaths: readonly Path[] = [
  path({
    pattern: 'code/:name',
    summary: 'The present code of a key; or, with a code, whether it is right',
    fields: { ...KEY_NAME, code: text('The code to check', { fallback: '' }) },
    read({ name }, call) {
      const key = durableKey(name, call)
      if (!key) throw unknown(name)
      const form = formOf(key)
      return { data: { code: codeAt(keyBytes(key), form, stepAt(form, call.wallMs)) } }
    },
    update: check,
  }),
]

function unknown(name: string): Rejection {
  return new Rejection(400, `unknown key: ${name}`)
}

/** One step from the read to the batch: of two callers with the same code one is refused. */
function check({ code: given, name }: { readonly code: string; readonly name: string }, call: EngineCall): Reply {
  const code = given.trim()
  if (code === '') throw new Rejection(400, 'the code value is required')
  const hash = hashOf(name, call)
  const key = pendingKey(hash, call)
  if (!key) throw unknown(name)
  const wrong = wrongCodesOf(call.storage)
  wrong.check(hash, call.nowMs)
  const step = matchCode(keyBytes(key), formOf(key), code, call.wallMs, key.skew)
  if (step === undefined) {
    wrong.count(hash, call.nowMs)
    return { data: { valid: false } }
  }
  const used = pendingUsed(hash, call)
  if (isUsed(used, step)) throw new Rejection(400, 'code already used; wait until the next time period')
  return { data: { valid: true }, batch: { puts: [usedPut(hash, withStep(used, step))], deletes: [] } }
}

function wrongCodesOf(storage: Storage): WrongCodes {
  const known = wrongCodes.get(storage)
  if (known) return known
  const fresh = new WrongCodes()
  wrongCodes.set(storage, fresh)
  return fresh
}
