/**
 * Batch tokens: the encrypted entry is the token. It is not stored, so it costs no write and cannot be renewed or revoked. The key
 * is an encrypted entry of this cluster, so tokens of other clusters are invalid.
 */
import * as v from 'valibot'
import { decrypt, encrypt } from '../../storage/barrier/cipher.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { textRecord } from '../../engines/framework/records.ts'
import { tryParseRecord } from '../../platform/stored-record.ts'
import { loginSchema, type TokenEntry } from './token-entry.ts'

export const BATCH_KEY_BYTES = 32
const PREFIX = 'b.'
/** A request header must hold the token, with the other headers. */
const TOKEN_LENGTH_MAX = 8192
/** Associated data. An entry has its path there, so no ciphertext of an entry is a token, and no token an entry. */
const CONTEXT = 'batch token'
const TERM = 1

const payloadSchema = v.object({
  policies: v.array(v.string()),
  displayName: v.string(),
  path: v.string(),
  meta: v.nullable(textRecord),
  parent: v.string(),
  depth: v.number(),
  entityId: v.string(),
  role: v.string(),
  createdAtMs: v.number(),
  ttlSeconds: v.number(),
  boundCidrs: v.array(v.string()),
  login: v.optional(loginSchema),
})

export function isBatch(token: string): boolean {
  return token.startsWith(PREFIX)
}

/** Throws a Rejection (400) for a token that is too long for a header. */
export function sealBatch(entry: TokenEntry, key: Buffer): string {
  const { boundCidrs, createdAtMs, depth, displayName, entityId, login, meta } = entry
  const { parent, path, policies, role, ttlSeconds } = entry
  const payload = {
    boundCidrs,
    createdAtMs,
    depth,
    displayName,
    entityId,
    meta,
    parent,
    path,
    policies,
    role,
    ttlSeconds,
    login,
  }
  const sealed = encrypt(CONTEXT, Buffer.from(JSON.stringify(payload)), { term: TERM, key })
  const token = PREFIX + sealed.toString('base64url')
  if (token.length <= TOKEN_LENGTH_MAX) return token
  throw new Rejection(
    400,
    `the batch token exceeds ${TOKEN_LENGTH_MAX} characters, the limit of a header: use fewer policies and less metadata`,
  )
}

/** The entry in a batch token; undefined for any other text. `hash` is the token's keyed hash. */
export function openBatch(token: string, hash: string, key: Buffer): TokenEntry | undefined {
  if (token.length > TOKEN_LENGTH_MAX || !/^[\w-]+$/.test(token.slice(PREFIX.length))) return undefined
  let text: string
  try {
    const sealed = Buffer.from(token.slice(PREFIX.length), 'base64url')
    text = decrypt(CONTEXT, sealed, (term) => (term === TERM ? key : undefined)).toString('utf8')
  } catch {
    return undefined
  }
  const parsed = tryParseRecord(payloadSchema, text)
  if (!parsed) return undefined
  const { login, ...payload } = parsed
  return {
    ...payload,
    ...(login && { login }),
    hash,
    accessor: '',
    type: 'batch',
    usesLeft: 0,
    leaseSeconds: payload.ttlSeconds,
    explicitMaxTtlSeconds: 0,
    periodSeconds: 0,
    renewable: false,
    expiresAtMs: payload.createdAtMs + payload.ttlSeconds * 1000,
  }
}
