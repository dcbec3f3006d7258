/** Stored records of roles and secret IDs. */
import { timingSafeEqual } from 'node:crypto'
import * as v from 'valibot'
import type { Put, Storage } from '../../storage/barrier/storage.ts'
import { parseRecord } from '../../platform/stored-record.ts'
import type { MountFacts } from '../../engines/framework/engine.ts'
import { PENDING_LOGIN_MS } from '../../engines/framework/login-grant.ts'
import { type ReadEntry, StoredRecord, textRecord } from '../../engines/framework/records.ts'
import { tokenTermsSchema } from '../../engines/framework/token-terms.ts'

const roleSchema = v.object({
  format: v.literal(1),
  name: v.string(),
  /** Unique, also if a role is deleted and created again with the same name. Prefix of the paths of its secret IDs. */
  uid: v.string(),
  roleId: v.string(),
  bindSecretId: v.boolean(),
  secretIdBoundCidrs: v.array(v.string()),
  /** 0: unlimited. */
  secretIdNumUses: v.number(),
  /** 0: no expiry. */
  secretIdTtlSeconds: v.number(),
  localSecretIds: v.boolean(),
  terms: tokenTermsSchema,
  groups: v.optional(v.array(v.string()), []),
})

const secretIdSchema = v.object({
  format: v.literal(1),
  accessor: v.string(),
  metadata: v.nullable(textRecord),
  cidrs: v.array(v.string()),
  tokenCidrs: v.array(v.string()),
  /** 0: unlimited. */
  usesLeft: v.number(),
  ttlSeconds: v.number(),
  createdAtMs: v.number(),
  updatedAtMs: v.number(),
  /** Absent: no expiry. */
  expiresAtMs: v.optional(v.number()),
})

export type AppRole = v.InferOutput<typeof roleSchema>
export type SecretIdRecord = v.InferOutput<typeof secretIdSchema>

export const rolePaths = {
  roles: 'role/',
  role: (hash: string) => `role/${hash}`,
  roleId: (hash: string) => `role-id/${hash}`,
  uids: 'secret/',
  secrets: (uid: string) => `secret/${uid}/`,
  secret: (uid: string, hash: string) => `secret/${uid}/${hash}`,
  accessor: (uid: string, hash: string) => `accessor/${uid}/${hash}`,
  accessors: (uid: string) => `accessor/${uid}/`,
} as const

export function hashOf(
  mount: Pick<MountFacts, 'secret'>,
  kind: 'role' | 'role-id' | 'secret-id' | 'accessor',
  text: string,
) {
  return mount.secret.digest(`${kind}\0${text}`, 'base64url')
}

export const roles = new StoredRecord(roleSchema, 'a role')

export function secretIdPut(path: string, secret: SecretIdRecord): Put {
  return { path, value: Buffer.from(JSON.stringify(secret)) }
}

/** Not cached, as most secret IDs are read once. */
function parsedSecretId(bytes: Buffer | undefined): SecretIdRecord | undefined {
  return bytes && parseRecord(secretIdSchema, bytes, 'a secret ID')
}

export function roleNamed(read: ReadEntry, mount: Pick<MountFacts, 'secret'>, name: string): AppRole | undefined {
  return roles.of(read(rolePaths.role(hashOf(mount, 'role', name))))
}

/** The role with a role ID. */
export function roleOfId(read: ReadEntry, mount: Pick<MountFacts, 'secret'>, roleId: string): AppRole | undefined {
  const hash = read(rolePaths.roleId(hashOf(mount, 'role-id', roleId)))?.toString('latin1')
  const role = hash === undefined ? undefined : roles.of(read(rolePaths.role(hash)))
  return role && isSame(role.roleId, roleId) ? role : undefined
}

function isSame(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)]
  return left.length === right.length && timingSafeEqual(left, right)
}

/** A valid secret ID, by its hash; undefined if it has expired. */
export function secretIdAt(read: ReadEntry, uid: string, hash: string, nowMs: number): SecretIdRecord | undefined {
  const secret = parsedSecretId(read(rolePaths.secret(uid, hash)))
  return secret && hasExpired(secret, nowMs) ? undefined : secret
}

/** Expiry time of a used-up secret ID, which is in the past for any clock. */
const USED_UP_AT_MS = 1

/** The secret ID after a login. With the last use it expires. */
export function withUse(secret: SecretIdRecord, nowMs: number): SecretIdRecord {
  // After the creation time, by which `mayHavePendingLogin` detects a use.
  const updatedAtMs = Math.max(nowMs, secret.createdAtMs + 1)
  if (secret.usesLeft === 1) return { ...secret, updatedAtMs, expiresAtMs: USED_UP_AT_MS }
  return { ...secret, updatedAtMs, usesLeft: secret.usesLeft - 1 }
}

/** Whether an earlier login with the secret ID may wait for an MFA code. */
export function mayHavePendingLogin({ createdAtMs, updatedAtMs }: SecretIdRecord, nowMs: number): boolean {
  return updatedAtMs > createdAtMs && updatedAtMs + PENDING_LOGIN_MS > nowMs
}

/** Whether it has expired or is used up, and no login with it can wait for an MFA code. */
function isRemovable(secret: SecretIdRecord, nowMs: number): boolean {
  const { expiresAtMs = 0, updatedAtMs } = secret
  return hasExpired(secret, nowMs) && Math.max(expiresAtMs, updatedAtMs) + PENDING_LOGIN_MS <= nowMs
}

function hasExpired({ expiresAtMs }: SecretIdRecord, nowMs: number): boolean {
  return expiresAtMs !== undefined && expiresAtMs <= nowMs
}

interface TidyContext {
  readonly mount: Pick<MountFacts, 'secret'>
  readonly storage: Storage
  readonly nowMs: number
}

/**
 * Removes expired secret IDs of a role, once no login with them can wait for an MFA code; all if the role is deleted. Resolves with
 * their number.
 */
export async function tidySecretIds(context: TidyContext, uid: string, isGone: boolean): Promise<number> {
  const { mount, nowMs, storage } = context
  let [removed, after] = [0, '']
  for (;;) {
    const hashes = storage.list(rolePaths.secrets(uid), { after, limit: 100 })
    after = hashes.at(-1) ?? ''
    if (after === '') return removed
    const deletes: string[] = []
    for (const hash of hashes) {
      const secret = parsedSecretId(storage.pending(rolePaths.secret(uid, hash)))
      if (!secret || (!isGone && !isRemovable(secret, nowMs))) continue
      deletes.push(rolePaths.secret(uid, hash), rolePaths.accessor(uid, hashOf(mount, 'accessor', secret.accessor)))
      removed++
    }
    if (deletes.length > 0) await storage.commit({ puts: [], deletes })
  }
}
