/** What is kept of roles and of their secret IDs, where, and how it is written. */
import { timingSafeEqual } from 'node:crypto'
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { Fault } from '../../platform/errors.ts'
import type { MountFacts } from '../../engines/framework/engine.ts'
import { PENDING_LOGIN_MS } from '../../engines/framework/login-grant.ts'
import { textRecord } from '../../engines/framework/records.ts'
import { tokenTermsSchema } from '../../engines/framework/token-terms.ts'

const roleSchema = v.object({
  format: v.literal(1),
  name: v.string(),
  /** Of this role alone, also where another one had its name before: below it are its secret IDs. */
  uid: v.string(),
  roleId: v.string(),
  bindSecretId: v.boolean(),
  secretIdBoundCidrs: v.array(v.string()),
  /** 0: as often as one likes. */
  secretIdNumUses: v.number(),
  /** 0: for ever. */
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
  /** 0: as often as one likes. */
  usesLeft: v.number(),
  ttlSeconds: v.number(),
  createdAtMs: v.number(),
  updatedAtMs: v.number(),
  /** Absent: for ever. */
  expiresAtMs: v.optional(v.number()),
})

export type Role = v.InferOutput<typeof roleSchema>
export type SecretId = v.InferOutput<typeof secretIdSchema>

/** What is read: what is durable, or what is pending where something is decided upon it. */
export type Reading = (path: string) => Buffer | undefined

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

export function encoded(record: Role | SecretId): Buffer {
  return Buffer.from(JSON.stringify(record))
}

function parsed<T>(bytes: Buffer | undefined, schema: v.GenericSchema<unknown, T>, what: string): T | undefined {
  if (!bytes) return undefined
  const result = v.safeParse(v.pipe(v.string(), v.parseJson(), schema), bytes.toString('utf8'))
  if (!result.success) throw new Fault(`the entry of ${what} is damaged`)
  return result.output
}

export function roleNamed(read: Reading, mount: Pick<MountFacts, 'secret'>, name: string): Role | undefined {
  return parsed(read(rolePaths.role(hashOf(mount, 'role', name))), roleSchema, 'a role')
}

/** The role of a role ID. */
export function roleOfId(read: Reading, mount: Pick<MountFacts, 'secret'>, roleId: string): Role | undefined {
  const hash = read(rolePaths.roleId(hashOf(mount, 'role-id', roleId)))?.toString('latin1')
  const role = hash === undefined ? undefined : parsed(read(rolePaths.role(hash)), roleSchema, 'a role')
  return role && isSame(role.roleId, roleId) ? role : undefined
}

function isSame(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)]
  return left.length === right.length && timingSafeEqual(left, right)
}

/** A secret ID that is good, by its hash; undefined for one that has expired. */
export function secretIdAt(read: Reading, uid: string, hash: string, nowMs: number): SecretId | undefined {
  const secret = parsed(read(rolePaths.secret(uid, hash)), secretIdSchema, 'a secret ID')
  return secret && hasExpired(secret, nowMs) ? undefined : secret
}

/** Of a secret ID whose last use was taken: it is an expired one, whatever the clock says. */
const USED_UP_AT_MS = 1

/** One login fewer: with the last one it has expired. */
export function used(secret: SecretId, nowMs: number): SecretId {
  // Later than it was made, by which `isPerhapsAwaited` sees a use.
  const updatedAtMs = Math.max(nowMs, secret.createdAtMs + 1)
  if (secret.usesLeft === 1) return { ...secret, updatedAtMs, expiresAtMs: USED_UP_AT_MS }
  return { ...secret, updatedAtMs, usesLeft: secret.usesLeft - 1 }
}

/** Whether a login of before may wait for its code, of a secret ID that is good for so many. */
export function isPerhapsAwaited({ createdAtMs, updatedAtMs }: SecretId, nowMs: number): boolean {
  return updatedAtMs > createdAtMs && updatedAtMs + PENDING_LOGIN_MS > nowMs
}

/** Whether it has expired or was used up, and no login with it waits for its code any more. */
function isOver(secret: SecretId, nowMs: number): boolean {
  const { expiresAtMs = 0, updatedAtMs } = secret
  return hasExpired(secret, nowMs) && Math.max(expiresAtMs, updatedAtMs) + PENDING_LOGIN_MS <= nowMs
}

export function hasExpired({ expiresAtMs }: SecretId, nowMs: number): boolean {
  return expiresAtMs !== undefined && expiresAtMs <= nowMs
}

/** Where, and by which time. */
interface TidiedPlace {
  readonly mount: Pick<MountFacts, 'secret'>
  readonly storage: Storage
  readonly nowMs: number
}

/**
 * Removes the secret IDs of a role that have expired, once no login with them waits for its code; with a role that is gone, all.
 * Resolves with how many.
 */
export async function tidied(place: TidiedPlace, uid: string, isGone: boolean): Promise<number> {
  const { mount, nowMs, storage } = place
  let [removed, after] = [0, '']
  for (;;) {
    const hashes = storage.list(rolePaths.secrets(uid), { after, limit: 100 })
    after = hashes.at(-1) ?? ''
    if (after === '') return removed
    const deletes: string[] = []
    for (const hash of hashes) {
      const secret = parsed(storage.pending(rolePaths.secret(uid, hash)), secretIdSchema, 'a secret ID')
      if (!secret || (!isGone && !isOver(secret, nowMs))) continue
      deletes.push(rolePaths.secret(uid, hash), rolePaths.accessor(uid, hashOf(mount, 'accessor', secret.accessor)))
      removed++
    }
    if (deletes.length > 0) await storage.commit({ puts: [], deletes })
  }
}
