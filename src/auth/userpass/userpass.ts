/**
 * Userpass: users log in with a name and a password.
 *
 * Promises. Neither the response nor its timing reveals whether a user exists: a login with an unknown name takes the same hash,
 * returns the same error, and wrong passwords lock the name as any other. The decision is made on state that is read after
 * the hash, so a password that was changed during the hash is not accepted.
 *
 * Failure mode. Passwords are guessed at a high rate: see `password-hash.ts`.
 */
import * as v from 'valibot'
import { type Engine, type EngineCall, path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { callerNetwork } from '../../engines/framework/cidr.ts'
import {
  changedGroups,
  changedTerms,
  GROUPS_FIELD,
  mayLogInFrom,
  NO_TERMS,
  groupsResponse,
  termsResponse,
  TOKEN_FIELDS,
  tokenTermsSchema,
} from '../../engines/framework/token-terms.ts'
import { inPath, type EngineInput, text, UNPRINTABLE } from '../../engines/framework/fields.ts'
import { hiddenNames, StoredRecord } from '../../engines/framework/records.ts'
import {
  HASH_COST,
  hashPassword,
  isPassword,
  type PasswordHash,
  passwordHashSchema,
  unknownUserHash,
} from './password-hash.ts'

const NAME_LENGTH_MAX = 256
const PASSWORD_LENGTH_MAX = 1024
const PREFIX = 'user/'

const userSchema = v.object({
  format: v.literal(1),
  name: v.string(),
  hash: passwordHashSchema,
  terms: tokenTermsSchema,
  groups: v.optional(v.array(v.string()), []),
})

type User = v.InferOutput<typeof userSchema>

const users = new StoredRecord(userSchema, 'a user')

const USERNAME = { username: inPath('Name of the user', { fold: 'case' }) }
const PASSWORD = { password: text('Password', { fallback: '' }) }
const USER = { ...USERNAME, ...PASSWORD, ...TOKEN_FIELDS, ...GROUPS_FIELD }

export interface UserpassOptions {
  /** scrypt's N for new passwords, a power of two: `HASH_COST` unless given. */
  readonly hashCost?: number
}

function userPath(name: string, secret: EngineCall['mount']['secret']): string {
  return PREFIX + secret.digest(`user\0${name}`, 'base64url')
}

function nameIn(entry: Buffer): string {
  return users.of(entry).name
}

function pendingUser(name: string, { mount, storage }: EngineCall): User | undefined {
  return users.of(storage.pending(userPath(name, mount.secret)))
}

function durableUser(name: string, { mount, storage }: Pick<EngineCall, 'mount' | 'storage'>): User | undefined {
  return users.of(storage.get(userPath(name, mount.secret)))
}

function hashFor(password: string, cost: number, { remote = '', signal }: EngineCall) {
  if (password.length > PASSWORD_LENGTH_MAX) {
    throw new Rejection(400, `a password can have at most ${PASSWORD_LENGTH_MAX} characters`)
  }
  return hashPassword(password, cost, { address: callerNetwork(remote), signal })
}

function put(user: User, { mount }: EngineCall) {
  return { puts: [users.put(userPath(user.name, mount.secret), user)], deletes: [] }
}

async function write(input: EngineInput<typeof USER>, cost: number, call: EngineCall): Promise<undefined> {
  const { username: name } = input
  if (name === '' || name.length > NAME_LENGTH_MAX || UNPRINTABLE.test(name)) {
    throw new Rejection(400, `a user name must have 1 to ${NAME_LENGTH_MAX} printable characters`)
  }
  // Validates before the hash, so that a refused request does not hash.
  changedTerms(pendingUser(name, call)?.terms ?? NO_TERMS, input)
  changedGroups([], input.groups)
  if (input.password === '' && !pendingUser(name, call)) throw new Rejection(400, 'missing password')
  const hash = input.password === '' ? undefined : await hashFor(input.password, cost, call)
  const before = pendingUser(name, call)
  const storedHash = hash ?? before?.hash
  if (!storedHash) throw new Rejection(400, 'missing password')
  const terms = changedTerms(before?.terms ?? NO_TERMS, input)
  const groups = changedGroups(before?.groups ?? [], input.groups)
  await call.storage.commit(
    put({ format: 1, name, hash: storedHash, terms: { ...terms, ...lists(terms) }, groups }, call),
  )
  return undefined
}

function lists({ boundCidrs, policies }: { boundCidrs: readonly string[]; policies: readonly string[] }) {
  return { boundCidrs: [...boundCidrs], policies: [...policies] }
}

interface PasswordCredentials {
  readonly username: string
  readonly password: string
}

/** `unknownHash` is used for a name without a user. */
async function login(
  { password, username: name }: PasswordCredentials,
  unknownHash: PasswordHash,
  call: EngineCall,
): Promise<Reply> {
  if (password === '') throw new Rejection(400, 'missing password')
  // No user can have such a name or password.
  if (name.length > NAME_LENGTH_MAX || password.length > PASSWORD_LENGTH_MAX) throw invalidCredentials()
  if (call.failures.isLocked(name)) throw new Rejection(403, 'permission denied')
  const before = durableUser(name, call)
  const isRight = await isPassword(password, before?.hash ?? unknownHash, {
    address: callerNetwork(call.remote ?? ''),
    signal: call.signal,
    beforeHash() {
      // Other logins with the same name may have failed while this one was queued.
      if (call.failures.isLocked(name)) throw new Rejection(403, 'permission denied')
    },
  })
  if (call.failures.isLocked(name)) throw new Rejection(403, 'permission denied')
  const user = pendingUser(name, call)
  const refusal = () => {
    call.failures.failed(name)
    return invalidCredentials()
  }
  if (!isRight || !user || user.hash.key !== before?.hash.key) throw refusal()
  // The same error and count, because a different error would confirm the password.
  if (!mayLogInFrom(user.terms.boundCidrs, call.remote)) throw refusal()
  return {
    login: {
      alias: { name, metadata: null },
      displayName: name,
      metadata: { username: name },
      terms: user.terms,
      subject: name,
      mark: markOf(user, call.mount.secret),
      groups: user.groups,
      accepted: () => call.failures.succeeded(name),
      refusal,
    },
  }
}

/** Identifies the current password. It differs after a change, and for a user that was deleted and created again. */
function markOf({ hash }: User, secret: EngineCall['mount']['secret']): string {
  return secret.digest(`mark\0${hash.key}`, 'base64url')
}

function invalidCredentials(): Rejection {
  return new Rejection(400, 'invalid username or password')
}

/** Changes an existing user. */
function change(name: string, call: EngineCall, alter: (user: User) => User): Reply {
  const user = pendingUser(name, call)
  if (!user) throw new Rejection(400, 'username does not exist')
  return { batch: put(alter(user), call) }
}

function pathsOf(hashCost: number): readonly Path[] {
  const unknownHash = unknownUserHash(hashCost)
  return [
    path({
      pattern: 'users',
      summary: 'List the users',
      fields: {},
      list: async (_input, call) => ({ data: { keys: await hiddenNames(call, PREFIX, nameIn) } }),
    }),
    path({
      pattern: 'users/:username',
      summary: 'Read, write or delete a user',
      fields: USER,
      exists: ({ username }, call) => pendingUser(username, call) !== undefined,
      read({ username }, call) {
        const user = durableUser(username, call)
        return user && { data: { ...termsResponse(user.terms), ...groupsResponse(user.groups) } }
      },
      update: (input, call) => write(input, hashCost, call),
      delete({ username }, call) {
        const user = pendingUser(username, call)
        if (!user) return undefined
        const batch = { puts: [], deletes: [userPath(username, call.mount.secret)] }
        return { batch, releasedAliases: [user.name] }
      },
    }),
    path({
      pattern: 'users/:username/password',
      summary: 'Change the password of a user',
      fields: { ...USERNAME, ...PASSWORD },
      async update({ password, username }, call) {
        if (password === '') throw new Rejection(400, 'missing password')
        if (!pendingUser(username, call)) throw new Rejection(400, 'username does not exist')
        const hash = await hashFor(password, hashCost, call)
        const { batch } = change(username, call, (user) => ({ ...user, hash }))
        if (batch) await call.storage.commit(batch)
        return undefined
      },
    }),
    path({
      pattern: 'users/:username/policies',
      summary: 'Change the policies of a user',
      fields: { ...USERNAME, token_policies: TOKEN_FIELDS.token_policies, policies: TOKEN_FIELDS.policies },
      update: ({ policies, token_policies: own = policies ?? [], username }, call) =>
        change(username, call, (user) => {
          const terms = changedTerms(user.terms, { ...NO_TOKEN_FIELDS, token_policies: own })
          return { ...user, terms: { ...terms, ...lists(terms) } }
        }),
    }),
    path({
      pattern: 'login/:username',
      summary: 'Log in with a name and a password',
      fields: { ...USERNAME, ...PASSWORD },
      unauthenticated: true,
      update: (input, call) => login(input, unknownHash, call),
    }),
  ]
}

export function userpassEngine({ hashCost = HASH_COST }: UserpassOptions = {}): Engine {
  return {
    type: 'userpass',
    description: 'logins with a name and a password',
    counted: { noun: 'users', folder: PREFIX },
    kind: 'auth',
    renewLogin(subject, { facts, storage }, mark) {
      const user = durableUser(subject, { mount: facts, storage })
      if (!user) throw new Rejection(400, 'the user of this token no longer exists, not renewing')
      if (mark !== undefined && mark !== markOf(user, facts.secret)) throw invalidCredentials()
      return { alias: subject, groups: user.groups, terms: user.terms }
    },
    paths: pathsOf(hashCost),
  }
}

export const userpass = userpassEngine()

const NO_TOKEN_FIELDS = Object.fromEntries(Object.keys(TOKEN_FIELDS).map((name) => [name, undefined])) as {
  readonly [K in keyof typeof TOKEN_FIELDS]: undefined
}
