/** The engine of `auth/token/`. */
import type { Engine, EngineCall, Path, Reply } from '../../engines/framework/engine.ts'
import { oneError, path, Rejection } from '../../engines/framework/engine.ts'
import { duration, inPath, integer, text } from '../../engines/framework/fields.ts'
import type { TokenServices } from './token-services.ts'
import { CREATE_FIELDS, createToken } from './token-create.ts'
import type { TokenEntry } from './token-entry.ts'
import { listAccessors, tokenData } from './token-lookup.ts'
import { renewToken } from './token-renew.ts'
import { findRole, rolePaths } from './token-role.ts'

export function tokenEngine(core: TokenServices): Engine {
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

const TOKEN = { token: text('Token', { fallback: '' }) }
const ACCESSOR = { accessor: text('Accessor of the token', { fallback: '' }) }
const INCREMENT = { increment: duration('Requested TTL from now; the granted TTL may be shorter', { fallback: 0 }) }

function createPaths(core: TokenServices): Path[] {
  return [
    path({
      pattern: 'create',
      summary: 'Create a token',
      fields: CREATE_FIELDS,
      update: (input, call) => createToken(core, input, call, { orphan: false }),
    }),
    path({
      pattern: 'create-orphan',
      summary: 'Create a token without a parent',
      fields: CREATE_FIELDS,
      update: (input, call) => createToken(core, input, call, { orphan: true }),
    }),
    path({
      pattern: 'create/:role_name',
      summary: 'Create a token from a role',
      fields: { ...CREATE_FIELDS, role_name: inPath('Name of the role') },
      update(input, call) {
        const role = findRole(core, input.role_name)
        if (!role) throw new Rejection(400, `unknown role ${input.role_name}`)
        return createToken(core, input, call, { orphan: role.orphan, role })
      },
    }),
  ]
}

/** The calling token, with this use already counted. */
function callingToken(core: TokenServices, { caller, token = '' }: EngineCall): TokenEntry {
  const entry = core.open.tokens.entryOf(caller) ?? core.open.tokens.find(token, core.now())
  if (!entry) throw new Rejection(403, 'permission denied')
  return entry
}

/** Throws a Rejection (400) if no token has the accessor. */
function tokenByAccessor(core: TokenServices, accessor: string): TokenEntry {
  if (accessor === '') throw new Rejection(400, oneError('missing accessor'))
  const entry = core.open.tokens.findByAccessor(accessor, core.now())
  if (!entry) throw new Rejection(400, oneError('invalid accessor'))
  return entry
}

function lookupPaths(core: TokenServices): Path[] {
  const self = (call: EngineCall): Reply => ({
    data: tokenData(core, callingToken(core, call), call.token ?? '', call.nowMs),
  })
  const other = ({ token }: { token: string }, call: EngineCall): Reply => {
    if (token === '' || token === call.token) return self(call)
    const entry = core.open.tokens.find(token, call.nowMs)
    if (!entry) throw new Rejection(403, 'bad token')
    return { data: tokenData(core, entry, token, call.nowMs) }
  }
  return [
    path({
      pattern: 'lookup-self',
      summary: 'Read the properties of the calling token',
      fields: { token: text('Ignored: the calling token is used') },
      read: (_input, call) => self(call),
      update: (_input, call) => self(call),
    }),
    path({
      pattern: 'lookup',
      summary: 'Read the properties of a token, by default of the calling one',
      fields: TOKEN,
      read: other,
      update: other,
    }),
    path({
      pattern: 'lookup-accessor',
      summary: 'Read the properties of a token by its accessor',
      fields: ACCESSOR,
      update: ({ accessor }, { nowMs }) => ({ data: tokenData(core, tokenByAccessor(core, accessor), '', nowMs) }),
    }),
    path({
      pattern: 'accessors',
      summary: 'List the accessors of all tokens',
      sudo: true,
      fields: {
        after: text('List only accessors after this one', { fallback: '' }),
        limit: integer('Maximum number of accessors; 0 for all', { fallback: 0 }),
      },
      list: ({ after, limit }, { limitMax }) => listAccessors(core, after, limitMax ?? Math.max(0, limit)),
    }),
  ]
}

function renewPaths(core: TokenServices): Path[] {
  return [
    path({
      pattern: 'renew-self',
      summary: 'Renew the calling token',
      fields: { ...INCREMENT, token: text('Ignored: the calling token is used') },
      update: ({ increment }, call) =>
        renewToken(core, callingToken(core, call), { token: call.token ?? '', requestedTtlSeconds: increment }),
    }),
    path({
      pattern: 'renew',
      summary: 'Renew a token',
      fields: { ...TOKEN, ...INCREMENT },
      update({ increment, token }) {
        const entry = findToken(core, token)
        if (!entry) throw new Rejection(400, 'token not found')
        return renewToken(core, entry, { token, requestedTtlSeconds: increment })
      },
    }),
    path({
      pattern: 'renew-accessor',
      summary: 'Renew a token by its accessor',
      fields: { ...ACCESSOR, ...INCREMENT },
      update: ({ accessor, increment }) =>
        renewToken(core, tokenByAccessor(core, accessor), { token: '', requestedTtlSeconds: increment }),
    }),
  ]
}

/** Undefined if there is no such token. Throws a Rejection (400) for an empty text. */
function findToken(core: TokenServices, token: string): TokenEntry | undefined {
  if (token === '') throw new Rejection(400, 'missing token ID')
  return core.open.tokens.find(token, core.now())
}

async function revoke(core: TokenServices, { hash, type }: TokenEntry): Promise<undefined> {
  if (type === 'batch') throw new Rejection(400, 'batch tokens cannot be revoked')
  await core.open.revocation.revoke(hash)
  return undefined
}

function revokePaths(core: TokenServices): Path[] {
  return [
    path({
      pattern: 'revoke-self',
      summary: 'Revoke the calling token and its descendants',
      fields: { token: text('Ignored: the calling token is used') },
      update: (_input, call) => revoke(core, callingToken(core, call)),
    }),
    path({
      pattern: 'revoke',
      summary: 'Revoke a token and its descendants',
      fields: TOKEN,
      update({ token }) {
        const entry = findToken(core, token)
        return entry && revoke(core, entry)
      },
    }),
    path({
      pattern: 'revoke-accessor',
      summary: 'Revoke a token and its descendants by its accessor',
      fields: ACCESSOR,
      update({ accessor }) {
        if (accessor === '') throw new Rejection(400, oneError('missing accessor'))
        const entry = core.open.tokens.findByAccessor(accessor, core.now())
        return entry ? revoke(core, entry) : { warnings: ['No token found with this accessor'] }
      },
    }),
    path({
      pattern: 'revoke-orphan',
      summary: 'Revoke a token and make its children orphans',
      fields: TOKEN,
      async update({ token }, { sudo }) {
        const entry = findToken(core, token)
        if (!sudo) throw new Rejection(400, 'root or sudo privileges required to revoke and orphan')
        if (!entry) throw new Rejection(400, 'token to revoke not found')
        if (entry.type === 'batch') throw new Rejection(400, 'batch tokens cannot be revoked')
        await core.open.revocation.revokeOrphan(entry.hash)
        return undefined
      },
    }),
  ]
}

function tidyPath(core: TokenServices): Path {
  return path({
    pattern: 'tidy',
    summary: 'Remove data that belongs to no token',
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
