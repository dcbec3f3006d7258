/**
 * Batch tokens: the entry itself, sealed, is the token. Nothing of it is kept, so it cannot be renewed or revoked, and it
 * costs no write. The key is an entry below the barrier: another cluster's tokens do not open.
 */
import * as v from 'valibot'
import { decrypt, encrypt } from '../../storage/barrier/cipher.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { textRecord } from '../../engines/framework/records.ts'
import { loginSchema, type TokenEntry } from './token-entry.ts'

export const BATCH_KEY_BYTES = 32
const PREFIX = 'b.'
/** What headers have room for, with all the others. */
const TOKEN_LENGTH_MAX = 8192
/** Stands where an entry has its path, so that neither is ever taken for the other. */
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

/** Throws a Rejection (400) where it would be longer than a header may be. */
export function sealBatch(entry: TokenEntry, key: Buffer): string {
  const { boundCidrs, createdAtMs, depth, displayName, entityId, login, meta } = entry
  const { parent, path, policies, role, ttlSeconds } = entry
  const facts = {
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
  const sealed = encrypt(CONTEXT, Buffer.from(JSON.stringify(facts)), { term: TERM, key })
  const token = PREFIX + sealed.toString('base64url')
  if (token.length <= TOKEN_LENGTH_MAX) return token
  throw new Rejection(400, 'this batch token would be too long for a header: give it fewer policies and less metadata')
}

/** The entry that a batch token is; undefined for anything else. `hash` is what it goes by here. */
export function openBatch(token: string, hash: string, key: Buffer): TokenEntry | undefined {
  if (token.length > TOKEN_LENGTH_MAX || !/^[\w-]+$/.test(token.slice(PREFIX.length))) return undefined
  let text: string
  try {
    const sealed = Buffer.from(token.slice(PREFIX.length), 'base64url')
    text = decrypt(CONTEXT, sealed, (term) => (term === TERM ? key : undefined)).toString('utf8')
  } catch {
    return undefined
  }
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), payloadSchema), text)
  if (!parsed.success) return undefined
  const { login, ...facts } = parsed.output
  return {
    ...facts,
    ...(login && { login }),
    hash,
    accessor: '',
    type: 'batch',
    usesLeft: 0,
    leaseSeconds: facts.ttlSeconds,
    explicitMaxTtlSeconds: 0,
    periodSeconds: 0,
    renewable: false,
    expiresAtMs: facts.createdAtMs + facts.ttlSeconds * 1000,
  }
}
