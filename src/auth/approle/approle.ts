/**
 * AppRole: programs log in with the ID of a role and their own secret ID.
 *
 * Promises. A secret ID with a limited number of uses allows exactly that many logins under concurrency: the use is committed with
 * the token. No path of the store contains a role ID, a secret ID or the name of a role. Secret IDs are not stored, but found
 * by a keyed hash. A login that waits for an MFA code can be completed if the secret ID is used up or expires meanwhile: its record
 * is kept for that time. All invalid pairs get the same error. They lock the role ID for a while, whether a role has it
 * or not, so neither the error nor the lockout reveals which role IDs exist.
 *
 * Failure mode. Secret IDs are created faster than they are used up: expired ones are refused, and removed every ten minutes while
 * new ones of the role are created, or by `tidy/secret-id`.
 */
import { type Engine, type EngineCall, path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { text } from '../../engines/framework/fields.ts'
import type { ReadEntry } from '../../engines/framework/records.ts'
import { mayLogInFrom } from '../../engines/framework/token-terms.ts'
import {
  hashOf,
  mayHavePendingLogin,
  type AppRole,
  roleNamed,
  roleOfId,
  rolePaths as at,
  type SecretIdRecord,
  secretIdAt,
  roles,
  secretIdPut,
  tidySecretIds,
  withUse,
} from './role-record.ts'
import { ROLE_ID_LENGTH_MAX, rolePaths } from './role-paths.ts'
import { secretIdPaths } from './secret-id-paths.ts'

const TEXT_LENGTH_MAX = 4096

function login(
  { role_id: roleId, secret_id: secretId }: { role_id: string; secret_id: string },
  call: EngineCall,
): Reply {
  if (roleId === '') throw new Rejection(400, 'missing role_id')
  const { failures, mount, nowMs, remote, storage } = call
  // Longer than any role ID or secret ID.
  if (roleId.length > ROLE_ID_LENGTH_MAX || secretId.length > TEXT_LENGTH_MAX) throw invalidCredentials()
  if (failures.isLocked(roleId)) throw new Rejection(403, 'permission denied')
  const refusal = () => {
    failures.failed(roleId)
    return invalidCredentials()
  }
  const read = (each: string) => storage.pending(each)
  const role = roleOfId(read, mount, roleId)
  if (role && !role.bindSecretId) return loginReply(role, undefined, '', { call, refusal })
  if (secretId === '') throw new Rejection(400, 'missing secret_id')
  const hash = hashOf(mount, 'secret-id', secretId)
  const secret = role && secretIdAt(read, role.uid, hash, nowMs)
  if (!role || !secret) throw refusal()
  if (!mayLogInFrom(role.secretIdBoundCidrs, remote) || !mayLogInFrom(secret.cidrs, remote)) throw refusal()
  // With the last use the record is removed, unless another login may wait for an MFA code.
  const isLast = secret.usesLeft === 1
  const isRemoved = isLast && !mayHavePendingLogin(secret, nowMs)
  const reply = loginReply(role, secret, isRemoved ? USED_UP : hash, { call, refusal })
  if (secret.usesLeft === 0) return reply
  const entry = at.secret(role.uid, hash)
  const accessors = isLast ? [at.accessor(role.uid, hashOf(mount, 'accessor', secret.accessor))] : []
  if (isRemoved) return { ...reply, batch: { puts: [], deletes: [entry, ...accessors] } }
  return { ...reply, batch: { puts: [secretIdPut(entry, withUse(secret, nowMs))], deletes: accessors } }
}

function invalidCredentials(): Rejection {
  return new Rejection(400, 'invalid role or secret ID')
}

/** Replaces the hash of a secret ID that was removed with its last use. */
const USED_UP = 'used'

/** `credential`: the hash of the secret ID, `USED_UP`, or empty for a login without a secret ID. */
function loginReply(
  role: AppRole,
  secret: SecretIdRecord | undefined,
  credential: string,
  { call, refusal }: { readonly call: EngineCall; readonly refusal: () => Rejection },
): Reply {
  const { failures, remote } = call
  const boundCidrs = secret && secret.tokenCidrs.length > 0 ? secret.tokenCidrs : role.terms.boundCidrs
  // The same error, so that a caller from another address does not learn that the pair is valid.
  if (!mayLogInFrom(role.terms.boundCidrs, remote) || !mayLogInFrom(boundCidrs, remote)) throw refusal()
  const metadata = { ...secret?.metadata, role_name: role.name }
  return {
    login: {
      alias: { name: role.roleId, metadata: null },
      displayName: '',
      metadata,
      terms: { ...role.terms, boundCidrs },
      subject: role.name,
      mark: [role.uid, credential].join(MARK_SEPARATOR),
      groups: role.groups,
      accepted: () => failures.succeeded(role.roleId),
      refusal,
    },
  }
}

const MARK_SEPARATOR = '/'

/** Whether a mark is of this role, and its secret ID was not destroyed. It may have expired or be used up. */
function isStillValid(role: AppRole, mark: string, read: ReadEntry): boolean {
  const [uid = '', credential = ''] = mark.split(MARK_SEPARATOR)
  if (uid !== role.uid || (credential === '' && role.bindSecretId)) return false
  return credential === '' || credential === USED_UP || read(at.secret(uid, credential)) !== undefined
}

export const approle: Engine = {
  type: 'approle',
  description: 'logins of machines and programs with a role ID and a secret ID',
  counted: { noun: 'roles', folder: at.roles },
  kind: 'auth',
  renewLogin(subject, { facts, storage }, mark) {
    const read = (each: string) => storage.get(each)
    const role = roleNamed(read, facts, subject)
    if (!role) throw new Rejection(400, 'the role of this token no longer exists, not renewing')
    if (mark !== undefined && !isStillValid(role, mark, read)) throw invalidCredentials()
    return { alias: role.roleId, groups: role.groups, terms: role.terms }
  },
  paths: [
    path({
      pattern: 'login',
      summary: 'Log in with a role ID and a secret ID',
      fields: {
        role_id: text('Role ID', { fallback: '' }),
        secret_id: text('Secret ID', { fallback: '' }),
      },
      unauthenticated: true,
      update: login,
    }),
    path({
      pattern: 'tidy/secret-id',
      summary: 'Remove expired secret IDs and those of deleted roles',
      fields: {},
      async update(_input, call) {
        const { storage } = call
        const uids = storage.list(at.roles).flatMap((hash) => roles.of(storage.get(at.role(hash)))?.uid ?? [])
        const live = new Set(uids)
        for (const folder of storage.list(at.uids)) {
          const uid = folder.slice(0, -1)
          await tidySecretIds(call, uid, !live.has(uid))
        }
        return { status: 202, warnings: ['Expired secret IDs were removed.'] }
      },
    }),
    ...rolePaths(),
    ...secretIdPaths(),
  ],
}
