/** `role/…` of an AppRole mount: what programs are, and what their tokens may do. */
import { randomUUID } from 'node:crypto'
import { AddressRanges } from '../../engines/framework/addresses.ts'
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import {
  changedGroups,
  changedTerms,
  GROUPS_FIELD,
  NO_TERMS,
  shownGroups,
  shownTerms,
  TOKEN_FIELDS,
} from '../../engines/framework/token-terms.ts'
import {
  aliasField,
  boolean,
  commaList,
  duration,
  type EngineFields,
  inPath,
  type EngineInput,
  integer,
  text,
  UNPRINTABLE,
} from '../../engines/framework/fields.ts'
import { hiddenNames } from '../../engines/framework/records.ts'
import { encoded, hashOf, type Role, roleNamed, roleOfId, rolePaths as at, tidied } from './role-record.ts'

const NAME_LENGTH_MAX = 256
export const ROLE_ID_LENGTH_MAX = 512
const CIDRS_MAX = 256

export const ROLE_NAME = { role_name: inPath('Name of the role', { fold: 'case' }) }
const FIELDS = {
  ...ROLE_NAME,
  ...TOKEN_FIELDS,
  ...GROUPS_FIELD,
  role_id: text('ID of the role; made by the server unless given'),
  bind_secret_id: boolean('Whether a login needs a secret ID; true unless given'),
  secret_id_bound_cidrs: commaList('Addresses and ranges that logins with a secret ID may come from'),
  bound_cidr_list: aliasField(commaList('Old name of secret_id_bound_cidrs'), 'secret_id_bound_cidrs'),
  secret_id_num_uses: integer('How many logins a secret ID is good for; 0 for as many as one likes'),
  secret_id_ttl: duration('How long a secret ID is good; 0 for ever'),
  local_secret_ids: boolean('Kept for clients that set it; can be set only when the role is made'),
}

type RoleInput = EngineInput<typeof FIELDS>

const NOTHING_GIVEN = Object.fromEntries(Object.keys(FIELDS).map((name) => [name, undefined])) as {
  readonly [K in Exclude<keyof typeof FIELDS, 'role_name'>]: undefined
}

/** Settings that have a path of their own, and what its reading tells them by. */
const SETTINGS = [
  'bind-secret-id',
  'secret-id-bound-cidrs',
  'bound-cidr-list',
  'secret-id-num-uses',
  'secret-id-ttl',
  'local-secret-ids',
  'policies',
  'period',
  'token-bound-cidrs',
  'token-max-ttl',
  'token-num-uses',
  'token-period',
  'token-ttl',
  'token-type',
  'token-policies',
  'token-no-default-policy',
  'token-explicit-max-ttl',
  'groups',
] as const

export function rolePaths(): Path[] {
  return [
    path({
      pattern: 'role',
      summary: 'Names of the roles',
      fields: {},
      list: async (_input, call) => ({ data: { keys: await hiddenNames(call, at.roles, nameIn) } }),
    }),
    path({
      pattern: 'role/:role_name',
      summary: 'A role that programs log in with',
      fields: FIELDS,
      exists: ({ role_name: name }, call) => pending(name, call) !== undefined,
      read: ({ role_name: name }, call) => {
        const role = durable(name, call)
        return role && { data: shown(role) }
      },
      update: write,
      delete: remove,
    }),
    path({
      pattern: 'role/:role_name/role-id',
      summary: 'The ID of a role',
      fields: { ...ROLE_NAME, role_id: text('Another ID of the role', { fallback: '' }) },
      read: ({ role_name: name }, call) => {
        const role = durable(name, call)
        return role && { data: { role_id: role.roleId } }
      },
      update({ role_id: roleId, role_name: name }, call) {
        if (roleId === '') throw new Rejection(400, 'missing role_id')
        if (!pending(name, call)) throw new Rejection(404)
        return write({ ...NOTHING_GIVEN, role_name: name, role_id: roleId }, call)
      },
    }),
    ...SETTINGS.map(settingPath),
  ]
}

/** One setting of a role, by a path of its own. */
function settingPath(setting: (typeof SETTINGS)[number]): Path {
  const field = setting.replaceAll('-', '_') as Exclude<keyof typeof FIELDS, 'role_name'>
  const fields: EngineFields = { ...ROLE_NAME, [field]: FIELDS[field] }
  return path({
    pattern: `role/:role_name/${setting}`,
    summary: `The setting ${field} of a role`,
    fields,
    read: (input, call) => {
      const role = durable(String(input['role_name']), call)
      return role && { data: { [field]: shown(role)[NEWER[field] ?? field] } }
    },
    update(input, call) {
      const name = String(input['role_name'])
      if (!pending(name, call)) throw new Rejection(404)
      return write({ ...NOTHING_GIVEN, ...input, role_name: name }, call)
    },
    delete(input, call) {
      const name = String(input['role_name'])
      const role = pending(name, call)
      if (!role) return undefined
      // No addresses are shown as null, which would be taken as not given.
      const value = fieldDefaults[NEWER[field] ?? field] ?? []
      return write({ ...NOTHING_GIVEN, [field]: value, role_name: name }, call)
    },
  })
}

const NEWER: Readonly<Record<string, string>> = {
  policies: 'token_policies',
  period: 'token_period',
  bound_cidr_list: 'secret_id_bound_cidrs',
}

function nameIn(entry: Buffer): string {
  return (JSON.parse(entry.toString('utf8')) as Role).name
}

function pending(name: string, { mount, storage }: EngineCall): Role | undefined {
  return roleNamed((each) => storage.pending(each), mount, name)
}

function durable(name: string, { mount, storage }: EngineCall): Role | undefined {
  return roleNamed((each) => storage.get(each), mount, name)
}

function fresh(name: string): Role {
  return {
    format: 1,
    name,
    uid: randomUUID(),
    roleId: randomUUID(),
    bindSecretId: true,
    secretIdBoundCidrs: [],
    secretIdNumUses: 0,
    secretIdTtlSeconds: 0,
    localSecretIds: false,
    terms: { ...NO_TERMS, policies: [], boundCidrs: [] },
    groups: [],
  }
}

function shown(role: Role): Record<string, unknown> {
  return {
    bind_secret_id: role.bindSecretId,
    local_secret_ids: role.localSecretIds,
    secret_id_bound_cidrs: role.secretIdBoundCidrs.length > 0 ? role.secretIdBoundCidrs : null,
    secret_id_num_uses: role.secretIdNumUses,
    secret_id_ttl: role.secretIdTtlSeconds,
    ...shownTerms(role.terms),
    ...shownGroups(role.groups),
  }
}

const fieldDefaults = shown(fresh(''))

function write(input: RoleInput, call: EngineCall): Reply {
  const name = input.role_name
  if (name === '' || name.length > NAME_LENGTH_MAX || UNPRINTABLE.test(name)) {
    throw new Rejection(400, `the name of a role has 1 to ${NAME_LENGTH_MAX} characters, all of them printable`)
  }
  const known = pending(name, call)
  const before = known ?? fresh(name)
  const cidrs = input.secret_id_bound_cidrs ?? input.bound_cidr_list
  if (known && input.local_secret_ids !== undefined && input.local_secret_ids !== known.localSecretIds) {
    throw new Rejection(400, 'local_secret_ids can only be modified during role creation')
  }
  const terms = changedTerms(before.terms, input)
  const role: Role = {
    ...before,
    roleId: input.role_id ?? before.roleId,
    bindSecretId: input.bind_secret_id ?? before.bindSecretId,
    secretIdBoundCidrs: cidrs ? [...cidrs] : before.secretIdBoundCidrs,
    secretIdNumUses: input.secret_id_num_uses ?? before.secretIdNumUses,
    secretIdTtlSeconds: input.secret_id_ttl ?? before.secretIdTtlSeconds,
    localSecretIds: input.local_secret_ids ?? before.localSecretIds,
    terms: { ...terms, policies: [...terms.policies], boundCidrs: [...terms.boundCidrs] },
    groups: changedGroups(before.groups, input.groups),
  }
  check(role, call)
  const { mount } = call
  const [hash, idHash] = [hashOf(mount, 'role', name), hashOf(mount, 'role-id', role.roleId)]
  const puts = [
    { path: at.role(hash), value: encoded(role) },
    { path: at.roleId(idHash), value: Buffer.from(hash, 'latin1') },
  ]
  if (!known || before.roleId === role.roleId) return { batch: { puts, deletes: [] } }
  const oldId = at.roleId(hashOf(mount, 'role-id', before.roleId))
  return { batch: { puts, deletes: [oldId] }, releasedAliases: [before.roleId] }
}

function check(role: Role, call: EngineCall): void {
  const { roleId, secretIdBoundCidrs, secretIdNumUses, terms } = role
  if (roleId === '' || roleId.length > ROLE_ID_LENGTH_MAX || UNPRINTABLE.test(roleId)) {
    throw new Rejection(400, `a role ID has 1 to ${ROLE_ID_LENGTH_MAX} characters, all of them printable`)
  }
  const holder = roleOfId((each) => call.storage.pending(each), call.mount, roleId)
  if (holder && holder.name !== role.name) throw new Rejection(400, 'role_id already in use')
  if (secretIdNumUses < 0) throw new Rejection(400, 'secret_id_num_uses cannot be negative')
  if (secretIdBoundCidrs.length > CIDRS_MAX)
    throw new Rejection(400, `at most ${CIDRS_MAX} addresses and ranges can be bound`)
  // Throws for a range that is none.
  void new AddressRanges(secretIdBoundCidrs)
  if (!role.bindSecretId && secretIdBoundCidrs.length === 0 && terms.boundCidrs.length === 0) {
    throw new Rejection(400, 'at least one constraint should be enabled on the role')
  }
}

function remove({ role_name: name }: RoleInput, call: EngineCall): Reply | undefined {
  const role = pending(name, call)
  if (!role) return undefined
  const { mount } = call
  const deletes = [at.role(hashOf(mount, 'role', role.name)), at.roleId(hashOf(mount, 'role-id', role.roleId))]
  const landed = () => {
    // A role whose removal failed keeps its secret IDs.
    if (durable(name, call)?.uid === role.uid) return
    // No request finds them once the role is removed. Those that a fault leaves are removed by the next tidying.
    setImmediate(() => void tidied(call, role.uid, true).catch(() => undefined))
  }
  return { batch: { puts: [], deletes }, releasedAliases: [role.roleId], landed }
}
