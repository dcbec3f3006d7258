/** `keys/…` of a TOTP mount: making, importing, reading and removing keys. */
import { type EngineCall, path, type Path, type Reply } from '../framework/engine.ts'
import { hiddenNames } from '../framework/records.ts'
import { otpauthUrl } from './codes.ts'
import { checkedKey, KEY_FIELDS, type KeyInput } from './key-input.ts'
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
  type TotpKey,
  usedPath,
} from './key-record.ts'
import { qrPng } from './qr.ts'

export const keyPaths: readonly Path[] = [
  path({
    pattern: 'keys',
    summary: 'Names of the keys',
    fields: {},
    list: async (_input, call) => ({ data: { keys: await hiddenNames(call, KEYS, nameIn) } }),
  }),
  path({
    pattern: 'keys/:name',
    summary: 'A key: generated here, or imported from another service',
    fields: KEY_FIELDS,
    read({ name }, call) {
      const key = durableKey(name, call)
      return key && { data: shown(key) }
    },
    update: (input, call) => (input.generate ? generate(input, call) : importKey(input, call)),
    delete({ name }, call) {
      const hash = hashOf(name, call)
      return { batch: { puts: [], deletes: [keyPath(hash), usedPath(hash)] } }
    },
  }),
]

function nameIn(entry: Buffer): string {
  return parsedKey(entry).name
}

/** Never the key itself. */
function shown({ account, algorithm, digits, issuer, periodSeconds }: TotpKey): Record<string, unknown> {
  return { account_name: account, algorithm, digits, issuer, period: periodSeconds }
}

/** The QR code is drawn first, so that nothing is kept where it cannot be. */
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

/** A key that is written again keeps what was accepted of it: whoever repeats an import lets no code in twice. */
function importKey(input: KeyInput, call: EngineCall): Reply {
  const hash = hashOf(input.name, call)
  const key = checkedKey(input)
  const before = pendingKey(hash, call)
  const isSame = before?.key === key.key && before.periodSeconds === key.periodSeconds
  return { batch: { puts: [keyPut(hash, key)], deletes: isSame ? [] : [usedPath(hash)] } }
}
