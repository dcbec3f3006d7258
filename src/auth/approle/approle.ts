/**
 * AppRole: programs log in with the ID of a role, which says what they are, and a secret ID, which each gets for itself.
 *
 * Promises. Of a secret ID that is good for so many logins there are so many, whatever comes at the same time: the login that
 * takes one is committed with its token. No role ID, secret ID or name of a role is in a path of the store, and no secret ID is kept
 * at all: it is found by a keyed hash. A login that waits for its code is finished although others use the secret ID up, or it expires:
 * what is left of it stays for so long. A login without a good pair is refused with the same text, whatever is wrong with it. Such
 * logins lock the role ID for a while, whether a role has it or not, so neither the text nor the lockout tells which role IDs exist.
 *
 * What can go wrong. Secret IDs are made faster than they are used up: those that have expired are refused, and removed by a
 * look at their role each ten minutes in which one is made, or by `tidy/secret-id`.
 */
import { type Engine, type EngineCall, path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { text } from '../../engines/framework/fields.ts'
import { mayLogInFrom } from '../../engines/framework/token-terms.ts'
import {
  encoded,
  hashOf,
  isPerhapsAwaited,
  type Reading,
  type Role,
  roleNamed,
  roleOfId,
  rolePaths as at,
  type SecretId,
  secretIdAt,
  tidied,
  used,
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
  // No role has such an ID, no secret ID is as long.
  if (roleId.length > ROLE_ID_LENGTH_MAX || secretId.length > TEXT_LENGTH_MAX) throw wrong()
  if (failures.isLocked(roleId)) throw new Rejection(403, 'permission denied')
  const refusal = () => {
    failures.failed(roleId)
    return wrong()
  }
  const read = (each: string) => storage.pending(each)
  const role = roleOfId(read, mount, roleId)
  if (role && !role.bindSecretId) return granted(role, undefined, '', { call, refusal })
  if (secretId === '') throw new Rejection(400, 'missing secret_id')
  const hash = hashOf(mount, 'secret-id', secretId)
  const secret = role && secretIdAt(read, role.uid, hash, nowMs)
  if (!role || !secret) throw refusal()
  if (!mayLogInFrom(role.secretIdBoundCidrs, remote) || !mayLogInFrom(secret.cidrs, remote)) throw refusal()
  // Of a secret ID whose last use this is nothing is left to be looked at later, unless another login may wait for its code.
  const isLast = secret.usesLeft === 1
  const isRemoved = isLast && !isPerhapsAwaited(secret, nowMs)
  const reply = granted(role, secret, isRemoved ? USED_UP : hash, { call, refusal })
  if (secret.usesLeft === 0) return reply
  const place = at.secret(role.uid, hash)
  const accessors = isLast ? [at.accessor(role.uid, hashOf(mount, 'accessor', secret.accessor))] : []
  if (isRemoved) return { ...reply, batch: { puts: [], deletes: [place, ...accessors] } }
  const value = encoded(used(secret, nowMs))
  return { ...reply, batch: { puts: [{ path: place, value }], deletes: accessors } }
}

function wrong(): Rejection {
  return new Rejection(400, 'invalid role or secret ID')
}

/** Stands for the hash of a secret ID that was removed with its last use. */
const USED_UP = 'used'

/** `credential`: the hash of the secret ID, `USED_UP`, or nothing for a login without one. */
function granted(
  role: Role,
  secret: SecretId | undefined,
  credential: string,
  { call, refusal }: { readonly call: EngineCall; readonly refusal: () => Rejection },
): Reply {
  const { failures, remote } = call
  const boundCidrs = secret && secret.tokenCidrs.length > 0 ? secret.tokenCidrs : role.terms.boundCidrs
  // A caller from another address is not told that the pair is good.
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

/** Whether the role of a mark is this one, and its secret ID was not taken back. It may be used up or have expired since it was shown. */
function isStillRight(role: Role, mark: string, read: Reading): boolean {
  const [uid = '', credential = ''] = mark.split(MARK_SEPARATOR)
  if (uid !== role.uid || (credential === '' && role.bindSecretId)) return false
  return credential === '' || credential === USED_UP || read(at.secret(uid, credential)) !== undefined
}

export const approle: Engine = {
  type: 'approle',
  description: 'logins of programs with a role ID and a secret ID',
  kind: 'auth',
  renewLogin(subject, { facts, storage }, mark) {
    const read = (each: string) => storage.get(each)
    const role = roleNamed(read, facts, subject)
    if (!role) throw new Rejection(400, 'the role of this token is gone, not renewing')
    if (mark !== undefined && !isStillRight(role, mark, read)) throw wrong()
    return { alias: role.roleId, groups: role.groups, terms: role.terms }
  },
  paths: [
    path({
      pattern: 'login',
      summary: 'Log in with a role ID and a secret ID',
      fields: {
        role_id: text('ID of the role', { fallback: '' }),
        secret_id: text('A secret ID of the role', { fallback: '' }),
      },
      unauthenticated: true,
      update: login,
    }),
    path({
      pattern: 'tidy/secret-id',
      summary: 'Remove the secret IDs that have expired, and those of roles that are gone',
      fields: {},
      async update(_input, call) {
        const { storage } = call
        const roles = storage.list(at.roles).flatMap((hash) => {
          const kept = storage.get(at.role(hash))
          return kept ? [(JSON.parse(kept.toString('utf8')) as { uid: string }).uid] : []
        })
        const live = new Set(roles)
        for (const folder of storage.list(at.uids)) {
          const uid = folder.slice(0, -1)
          await tidied(call, uid, !live.has(uid))
        }
        return { status: 202, warnings: ['Secret IDs that had expired are removed.'] }
      },
    }),
    ...rolePaths(),
    ...secretIdPaths(),
  ],
}
