/** The engine behind `auth/token/`. */
import type { Engine, EngineCall, Path, Reply } from '../../engines/framework/engine.ts'
import { oneError, path, Rejection } from '../../engines/framework/engine.ts'
import { duration, inPath, integer, text } from '../../engines/framework/fields.ts'
import type { TokenParts } from './token-parts.ts'
import { CREATE_FIELDS, createToken } from './token-create.ts'
import type { TokenEntry } from './token-entry.ts'
import { listAccessors, lookedUp } from './token-lookup.ts'
import { renewToken } from './token-renew.ts'
import { findRole, rolePaths } from './token-role.ts'

export function tokenEngine(core: TokenParts): Engine {
  return {
    type: 'token',
    description: 'token based credentials',
    kind: 'auth',
    isSingle: true,
    paths: [
      ...createPaths(core),
      ...lookupPaths(core),
      ...renewPaths(core),
      ...revokePaths(core),
      ...rolePaths(core),
      tidyPath(core),
    ],
  }
}

const TOKEN = { token: text('The token', { fallback: '' }) }
const ACCESSOR = { accessor: text('Its accessor', { fallback: '' }) }
const INCREMENT = { increment: duration('How long it shall live from now on; not promised', { fallback: 0 }) }

function createPaths(core: TokenParts): Path[] {
  return [
    path({
      pattern: 'create',
      summary: 'Make a token',
      fields: CREATE_FIELDS,
      update: (input, call) => createToken(core, input, call, { orphan: false }),
    }),
    path({
      pattern: 'create-orphan',
      summary: 'Make a token without a parent',
      fields: CREATE_FIELDS,
      update: (input, call) => createToken(core, input, call, { orphan: true }),
    }),
    path({
      pattern: 'create/:role_name',
      summary: 'Make a token of a role',
      fields: { ...CREATE_FIELDS, role_name: inPath('Name of the role') },
      update(input, call) {
        const role = findRole(core, input.role_name)
        if (!role) throw new Rejection(400, `unknown role ${input.role_name}`)
        return createToken(core, input, call, { orphan: role.orphan, role })
      },
    }),
  ]
}

/** The calling token, as it is after this use of it. */
function own(core: TokenParts, { caller, token = '' }: EngineCall): TokenEntry {
  const entry = core.open.tokens.entryOf(caller) ?? core.open.tokens.find(token, core.now())
  if (!entry) throw new Rejection(403, 'permission denied')
  return entry
}

/** The token of an accessor. Throws a Rejection (400). */
function ofAccessor(core: TokenParts, accessor: string): TokenEntry {
  if (accessor === '') throw new Rejection(400, oneError('missing accessor'))
  const entry = core.open.tokens.findByAccessor(accessor, core.now())
  if (!entry) throw new Rejection(400, oneError('invalid accessor'))
  return entry
}

function lookupPaths(core: TokenParts): Path[] {
  const self = (call: EngineCall): Reply => ({ data: lookedUp(core, own(core, call), call.token ?? '', call.nowMs) })
  const other = ({ token }: { token: string }, call: EngineCall): Reply => {
    if (token === '' || token === call.token) return self(call)
    const entry = core.open.tokens.find(token, call.nowMs)
    if (!entry) throw new Rejection(403, 'bad token')
    return { data: lookedUp(core, entry, token, call.nowMs) }
  }
  return [
    path({
      pattern: 'lookup-self',
      summary: 'What the calling token is and may do',
      fields: { token: text('Not looked at: the calling token is meant') },
      read: (_input, call) => self(call),
      update: (_input, call) => self(call),
    }),
    path({
      pattern: 'lookup',
      summary: 'What a token is and may do; the calling one unless one is given',
      fields: TOKEN,
      read: other,
      update: other,
    }),
    path({
      pattern: 'lookup-accessor',
      summary: 'What the token of an accessor is and may do',
      fields: ACCESSOR,
      update: ({ accessor }, { nowMs }) => ({ data: lookedUp(core, ofAccessor(core, accessor), '', nowMs) }),
    }),
    path({
      pattern: 'accessors',
      summary: 'Accessors of all tokens',
      sudo: true,
      fields: {
        after: text('Only those behind this one', { fallback: '' }),
        limit: integer('Only so many', { fallback: 0 }),
      },
      list: ({ after, limit }, { limitMax }) => listAccessors(core, after, limitMax ?? Math.max(0, limit)),
    }),
  ]
}

function renewPaths(core: TokenParts): Path[] {
  return [
    path({
      pattern: 'renew-self',
      summary: 'Give the calling token more time',
      fields: { ...INCREMENT, token: text('Not looked at: the calling token is meant') },
      update: ({ increment }, call) =>
        renewToken(core, own(core, call), { token: call.token ?? '', wishSeconds: increment }),
    }),
    path({
      pattern: 'renew',
      summary: 'Give a token more time',
      fields: { ...TOKEN, ...INCREMENT },
      update({ increment, token }) {
        const entry = named(core, token)
        if (!entry) throw new Rejection(400, 'token not found')
        return renewToken(core, entry, { token, wishSeconds: increment })
      },
    }),
    path({
      pattern: 'renew-accessor',
      summary: 'Give the token of an accessor more time',
      fields: { ...ACCESSOR, ...INCREMENT },
      update: ({ accessor, increment }) =>
        renewToken(core, ofAccessor(core, accessor), { token: '', wishSeconds: increment }),
    }),
  ]
}

/** Undefined for what is no token. Throws a Rejection (400) where none was named. */
function named(core: TokenParts, token: string): TokenEntry | undefined {
  if (token === '') throw new Rejection(400, 'missing token ID')
  return core.open.tokens.find(token, core.now())
}

async function revoke(core: TokenParts, { hash, type }: TokenEntry): Promise<undefined> {
  if (type === 'batch') throw new Rejection(400, 'batch tokens cannot be revoked')
  await core.open.revocation.revoke(hash)
  return undefined
}

function revokePaths(core: TokenParts): Path[] {
  return [
    path({
      pattern: 'revoke-self',
      summary: 'End the calling token and all that descend from it',
      fields: { token: text('Not looked at: the calling token is meant') },
      update: (_input, call) => revoke(core, own(core, call)),
    }),
    path({
      pattern: 'revoke',
      summary: 'End a token and all that descend from it',
      fields: TOKEN,
      update({ token }) {
        const entry = named(core, token)
        return entry && revoke(core, entry)
      },
    }),
    path({
      pattern: 'revoke-accessor',
      summary: 'End the token of an accessor and all that descend from it',
      fields: ACCESSOR,
      update({ accessor }) {
        if (accessor === '') throw new Rejection(400, oneError('missing accessor'))
        const entry = core.open.tokens.findByAccessor(accessor, core.now())
        return entry ? revoke(core, entry) : { warnings: ['No token found with this accessor'] }
      },
    }),
    path({
      pattern: 'revoke-orphan',
      summary: 'End a token and leave those that descend from it',
      fields: TOKEN,
      async update({ token }, { sudo }) {
        const entry = named(core, token)
        if (!sudo) throw new Rejection(400, 'root or sudo privileges required to revoke and orphan')
        if (!entry) throw new Rejection(400, 'token to revoke not found')
        if (entry.type === 'batch') throw new Rejection(400, 'batch tokens cannot be revoked')
        await core.open.revocation.revokeOrphan(entry.hash)
        return undefined
      },
    }),
  ]
}

function tidyPath(core: TokenParts): Path {
  return path({
    pattern: 'tidy',
    summary: 'Remove what belongs to no token any more',
    fields: {},
    update(): Reply {
      const hasBegun = core.open.tidy.begin()
      return {
        status: 202,
        warnings: [
          hasBegun
            ? "Tidy operation successfully started. Any information from the operation will be printed to the server's logs."
            : 'Tidy operation already in progress.',
        ],
      }
    },
  })
}
