/**
 * Userpass: people log in with a name and a password.
 *
 * Promises. A caller without a token learns from no answer, and from no time, whether there is a user: a name that is nobody's costs
 * the same hash and gets the same text, and wrong passwords lock it out as any other. What a login is decided upon is
 * looked at again once its hash is done: a password that was changed meanwhile lets nobody in.
 *
 * What can go wrong. Very many passwords are tried: see `password-hash.ts`.
 */
import * as v from 'valibot'
import { Fault } from '../../platform/errors.ts'
import { type Engine, type EngineCall, path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { callerNetwork } from '../../engines/framework/addresses.ts'
import {
  changedGroups,
  changedTerms,
  GROUPS_FIELD,
  mayLogInFrom,
  NO_TERMS,
  shownGroups,
  shownTerms,
  TOKEN_FIELDS,
  tokenTermsSchema,
} from '../../engines/framework/token-terms.ts'
import { inPath, type EngineInput, text, UNPRINTABLE } from '../../engines/framework/fields.ts'
import { hiddenNames } from '../../engines/framework/records.ts'
import {
  absentUsersHash,
  HASH_COST,
  hashed,
  isPassword,
  type PasswordHash,
  passwordHashSchema,
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

const USERNAME = { username: inPath('Name of the user', { fold: 'case' }) }
const PASSWORD = { password: text('The password', { fallback: '' }) }
const USER = { ...USERNAME, ...PASSWORD, ...TOKEN_FIELDS, ...GROUPS_FIELD }

export interface UserpassOptions {
  /** scrypt's N of new passwords, a power of two: `HASH_COST` unless given. */
  readonly hashCost?: number
}

function userPath(name: string, secret: EngineCall['mount']['secret']): string {
  return PREFIX + secret.digest(`user\0${name}`, 'base64url')
}

function parsed(bytes: Buffer): User {
  const user = v.safeParse(v.pipe(v.string(), v.parseJson(), userSchema), bytes.toString('utf8'))
  if (!user.success) throw new Fault('the entry of a user is damaged')
  return user.output
}

function nameIn(entry: Buffer): string {
  return parsed(entry).name
}

function pending(name: string, { mount, storage }: EngineCall): User | undefined {
  const entry = storage.pending(userPath(name, mount.secret))
  return entry && parsed(entry)
}

function durable(name: string, { mount, storage }: Pick<EngineCall, 'mount' | 'storage'>): User | undefined {
  const entry = storage.get(userPath(name, mount.secret))
  return entry && parsed(entry)
}

function hashFor(password: string, cost: number, { remote = '', signal }: EngineCall) {
  if (password.length > PASSWORD_LENGTH_MAX) {
    throw new Rejection(400, `a password has at most ${PASSWORD_LENGTH_MAX} characters`)
  }
  return hashed(password, cost, { address: callerNetwork(remote), signal })
}

function put(user: User, { mount }: EngineCall) {
  const value = Buffer.from(JSON.stringify(user))
  return { puts: [{ path: userPath(user.name, mount.secret), value }], deletes: [] }
}

async function write(input: EngineInput<typeof USER>, cost: number, call: EngineCall): Promise<undefined> {
  const { username: name } = input
  if (name === '' || name.length > NAME_LENGTH_MAX || UNPRINTABLE.test(name)) {
    throw new Rejection(400, `the name of a user has 1 to ${NAME_LENGTH_MAX} characters, all of them printable`)
  }
  // Before the hash: what is refused costs nothing.
  changedTerms(pending(name, call)?.terms ?? NO_TERMS, input)
  changedGroups([], input.groups)
  if (input.password === '' && !pending(name, call)) throw new Rejection(400, 'missing password')
  const hash = input.password === '' ? undefined : await hashFor(input.password, cost, call)
  const before = pending(name, call)
  const kept = hash ?? before?.hash
  if (!kept) throw new Rejection(400, 'missing password')
  const terms = changedTerms(before?.terms ?? NO_TERMS, input)
  const groups = changedGroups(before?.groups ?? [], input.groups)
  await call.storage.commit(put({ format: 1, name, hash: kept, terms: { ...terms, ...lists(terms) }, groups }, call))
  return undefined
}

function lists({ boundCidrs, policies }: { boundCidrs: readonly string[]; policies: readonly string[] }) {
  return { boundCidrs: [...boundCidrs], policies: [...policies] }
}

interface Credentials {
  readonly username: string
  readonly password: string
}

/** `absent` is compared with where there is no such user. */
async function login(
  { password, username: name }: Credentials,
  absent: PasswordHash,
  call: EngineCall,
): Promise<Reply> {
  if (password === '') throw new Rejection(400, 'missing password')
  // Nobody has such a name or such a password.
  if (name.length > NAME_LENGTH_MAX || password.length > PASSWORD_LENGTH_MAX) throw wrong()
  if (call.failures.isLocked(name)) throw new Rejection(403, 'permission denied')
  const before = durable(name, call)
  const isRight = await isPassword(password, before?.hash ?? absent, {
    address: callerNetwork(call.remote ?? ''),
    signal: call.signal,
    beforeHash() {
      // Logins with the same name may have failed while this one was queued.
      if (call.failures.isLocked(name)) throw new Rejection(403, 'permission denied')
    },
  })
  if (call.failures.isLocked(name)) throw new Rejection(403, 'permission denied')
  const user = pending(name, call)
  const refusal = () => {
    call.failures.failed(name)
    return wrong()
  }
  if (!isRight || !user || user.hash.key !== before?.hash.key) throw refusal()
  // The same answer, and counted alike: another one would tell that the password is right.
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

/** Of the password that a user has: another one, also of a user who was made anew, has another mark. */
function markOf({ hash }: User, secret: EngineCall['mount']['secret']): string {
  return secret.digest(`mark\0${hash.key}`, 'base64url')
}

function wrong(): Rejection {
  return new Rejection(400, 'invalid username or password')
}

/** Changes a user that is there. */
function change(name: string, call: EngineCall, alter: (user: User) => User): Reply {
  const user = pending(name, call)
  if (!user) throw new Rejection(400, 'username does not exist')
  return { batch: put(alter(user), call) }
}

function pathsOf(hashCost: number): readonly Path[] {
  const absent = absentUsersHash(hashCost)
  return [
    path({
      pattern: 'users',
      summary: 'Names of the users',
      fields: {},
      list: async (_input, call) => ({ data: { keys: await hiddenNames(call, PREFIX, nameIn) } }),
    }),
    path({
      pattern: 'users/:username',
      summary: 'A user',
      fields: USER,
      exists: ({ username }, call) => pending(username, call) !== undefined,
      read({ username }, call) {
        const user = durable(username, call)
        return user && { data: { ...shownTerms(user.terms), ...shownGroups(user.groups) } }
      },
      update: (input, call) => write(input, hashCost, call),
      delete({ username }, call) {
        const user = pending(username, call)
        if (!user) return undefined
        const batch = { puts: [], deletes: [userPath(username, call.mount.secret)] }
        return { batch, releasedAliases: [user.name] }
      },
    }),
    path({
      pattern: 'users/:username/password',
      summary: 'Another password for a user',
      fields: { ...USERNAME, ...PASSWORD },
      async update({ password, username }, call) {
        if (password === '') throw new Rejection(400, 'missing password')
        if (!pending(username, call)) throw new Rejection(400, 'username does not exist')
        const hash = await hashFor(password, hashCost, call)
        const { batch } = change(username, call, (user) => ({ ...user, hash }))
        if (batch) await call.storage.commit(batch)
        return undefined
      },
    }),
    path({
      pattern: 'users/:username/policies',
      summary: 'Other policies for a user',
      fields: { ...USERNAME, token_policies: TOKEN_FIELDS.token_policies, policies: TOKEN_FIELDS.policies },
      update: ({ policies, token_policies: own = policies ?? [], username }, call) =>
        change(username, call, (user) => {
          const terms = changedTerms(user.terms, { ...NOTHING_GIVEN, token_policies: own })
          return { ...user, terms: { ...terms, ...lists(terms) } }
        }),
    }),
    path({
      pattern: 'login/:username',
      summary: 'Log in with a name and a password',
      fields: { ...USERNAME, ...PASSWORD },
      unauthenticated: true,
      update: (input, call) => login(input, absent, call),
    }),
  ]
}

export function userpassEngine({ hashCost = HASH_COST }: UserpassOptions = {}): Engine {
  return {
    type: 'userpass',
    description: 'logins with a name and a password',
    kind: 'auth',
    renewLogin(subject, { facts, storage }, mark) {
      const user = durable(subject, { mount: facts, storage })
      if (!user) throw new Rejection(400, 'the user of this token is gone, not renewing')
      if (mark !== undefined && mark !== markOf(user, facts.secret)) throw wrong()
      return { alias: subject, groups: user.groups, terms: user.terms }
    },
    paths: pathsOf(hashCost),
  }
}

export const userpass = userpassEngine()

const NOTHING_GIVEN = Object.fromEntries(Object.keys(TOKEN_FIELDS).map((name) => [name, undefined])) as {
  readonly [K in keyof typeof TOKEN_FIELDS]: undefined
}
