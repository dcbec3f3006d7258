/** `role/…`: the roles of an AppRole mount. */
import { randomUUID } from 'node:crypto'
import { CidrRanges } from '../../engines/framework/cidr.ts'
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import {
  changedGroups,
  changedTerms,
  GROUPS_FIELD,
  NO_TERMS,
  groupsResponse,
  termsResponse,
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
import { hashOf, type AppRole, roleNamed, roleOfId, rolePaths as at, roles, tidySecretIds } from './role-record.ts'

const NAME_LENGTH_MAX = 256
export const ROLE_ID_LENGTH_MAX = 512
const CIDRS_MAX = 256

export const ROLE_NAME = { role_name: inPath('Name of the role', { fold: 'case' }) }
const FIELDS = {
  ...ROLE_NAME,
  ...TOKEN_FIELDS,
  ...GROUPS_FIELD,
  role_id: text('Role ID; generated unless set'),
  bind_secret_id: boolean('Require a secret ID for logins; true unless set'),
  secret_id_bound_cidrs: commaList('Addresses and ranges from which logins with a secret ID are allowed'),
  bound_cidr_list: aliasField(commaList('Deprecated: use secret_id_bound_cidrs'), 'secret_id_bound_cidrs'),
  secret_id_num_uses: integer('Number of uses of a secret ID; 0 for unlimited'),
  secret_id_ttl: duration('TTL of a secret ID; 0 for no expiry'),
  local_secret_ids: boolean('Stored for clients that set it; can be set only at creation'),
}

type RoleInput = EngineInput<typeof FIELDS>

const NO_ROLE_FIELDS = Object.fromEntries(Object.keys(FIELDS).map((name) => [name, undefined])) as {
  readonly [K in Exclude<keyof typeof FIELDS, 'role_name'>]: undefined
}

/** Settings with a separate path. */
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
      summary: 'List the roles',
      fields: {},
      list: async (_input, call) => ({ data: { keys: await hiddenNames(call, at.roles, nameIn) } }),
    }),
    path({
      pattern: 'role/:role_name',
      summary: 'Read, write or delete a role',
      fields: FIELDS,
      exists: ({ role_name: name }, call) => pendingRole(name, call) !== undefined,
      read: ({ role_name: name }, call) => {
        const role = durableRole(name, call)
        return role && { data: roleResponse(role) }
      },
      update: write,
      delete: remove,
    }),
    path({
      pattern: 'role/:role_name/role-id',
      summary: 'Read or change the role ID',
      fields: { ...ROLE_NAME, role_id: text('New role ID', { fallback: '' }) },
      read: ({ role_name: name }, call) => {
        const role = durableRole(name, call)
        return role && { data: { role_id: role.roleId } }
      },
      update({ role_id: roleId, role_name: name }, call) {
        if (roleId === '') throw new Rejection(400, 'missing role_id')
        if (!pendingRole(name, call)) throw new Rejection(404)
        return write({ ...NO_ROLE_FIELDS, role_name: name, role_id: roleId }, call)
      },
    }),
    ...SETTINGS.map(settingPath),
  ]
}

/** The path of a setting. */
function settingPath(setting: (typeof SETTINGS)[number]): Path {
  const field = setting.replaceAll('-', '_') as Exclude<keyof typeof FIELDS, 'role_name'>
  const fields: EngineFields = { ...ROLE_NAME, [field]: FIELDS[field] }
  return path({
    pattern: `role/:role_name/${setting}`,
    summary: `Read, change or reset ${field} of a role`,
    fields,
    read: (input, call) => {
      const role = durableRole(String(input['role_name']), call)
      return role && { data: { [field]: roleResponse(role)[CURRENT_NAMES[field] ?? field] } }
    },
    update(input, call) {
      const name = String(input['role_name'])
      if (!pendingRole(name, call)) throw new Rejection(404)
      return write({ ...NO_ROLE_FIELDS, ...input, role_name: name }, call)
    },
    delete(input, call) {
      const name = String(input['role_name'])
      const role = pendingRole(name, call)
      if (!role) return undefined
      // An empty list is shown as null, which would mean that the field is not given.
      const value = fieldDefaults[CURRENT_NAMES[field] ?? field] ?? []
      return write({ ...NO_ROLE_FIELDS, [field]: value, role_name: name }, call)
    },
  })
}

const CURRENT_NAMES: Readonly<Record<string, string>> = {
  policies: 'token_policies',
  period: 'token_period',
  bound_cidr_list: 'secret_id_bound_cidrs',
}

function nameIn(entry: Buffer): string {
  return roles.of(entry).name
}

function pendingRole(name: string, { mount, storage }: EngineCall): AppRole | undefined {
  return roleNamed((each) => storage.pending(each), mount, name)
}

function durableRole(name: string, { mount, storage }: EngineCall): AppRole | undefined {
  return roleNamed((each) => storage.get(each), mount, name)
}

function newRole(name: string): AppRole {
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

function roleResponse(role: AppRole): Record<string, unknown> {
  return {
    bind_secret_id: role.bindSecretId,
    local_secret_ids: role.localSecretIds,
    secret_id_bound_cidrs: role.secretIdBoundCidrs.length > 0 ? role.secretIdBoundCidrs : null,
    secret_id_num_uses: role.secretIdNumUses,
    secret_id_ttl: role.secretIdTtlSeconds,
    ...termsResponse(role.terms),
    ...groupsResponse(role.groups),
  }
}

const fieldDefaults = roleResponse(newRole(''))

function write(input: RoleInput, call: EngineCall): Reply {
  const name = input.role_name
  if (name === '' || name.length > NAME_LENGTH_MAX || UNPRINTABLE.test(name)) {
    throw new Rejection(400, `a role name must have 1 to ${NAME_LENGTH_MAX} printable characters`)
  }
  const known = pendingRole(name, call)
  const before = known ?? newRole(name)
  const cidrs = input.secret_id_bound_cidrs ?? input.bound_cidr_list
  if (known && input.local_secret_ids !== undefined && input.local_secret_ids !== known.localSecretIds) {
    throw new Rejection(400, 'local_secret_ids can only be modified during role creation')
  }
  const terms = changedTerms(before.terms, input)
  const role: AppRole = {
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
  const puts = [roles.put(at.role(hash), role), { path: at.roleId(idHash), value: Buffer.from(hash, 'latin1') }]
  if (!known || before.roleId === role.roleId) return { batch: { puts, deletes: [] } }
  const oldId = at.roleId(hashOf(mount, 'role-id', before.roleId))
  return { batch: { puts, deletes: [oldId] }, releasedAliases: [before.roleId] }
}

function check(role: AppRole, call: EngineCall): void {
  const { roleId, secretIdBoundCidrs, secretIdNumUses, terms } = role
  if (roleId === '' || roleId.length > ROLE_ID_LENGTH_MAX || UNPRINTABLE.test(roleId)) {
    throw new Rejection(400, `a role ID must have 1 to ${ROLE_ID_LENGTH_MAX} printable characters`)
  }
  const holder = roleOfId((each) => call.storage.pending(each), call.mount, roleId)
  if (holder && holder.name !== role.name) throw new Rejection(400, 'role_id already in use')
  if (secretIdNumUses < 0) throw new Rejection(400, 'secret_id_num_uses cannot be negative')
  if (secretIdBoundCidrs.length > CIDRS_MAX)
    throw new Rejection(400, `at most ${CIDRS_MAX} addresses and ranges are allowed`)
  // Throws for an invalid range.
  void new CidrRanges(secretIdBoundCidrs)
  if (!role.bindSecretId && secretIdBoundCidrs.length === 0 && terms.boundCidrs.length === 0) {
    throw new Rejection(400, 'at least one constraint should be enabled on the role')
  }
}

function remove({ role_name: name }: RoleInput, call: EngineCall): Reply | undefined {
  const role = pendingRole(name, call)
  if (!role) return undefined
  const { mount } = call
  const deletes = [at.role(hashOf(mount, 'role', role.name)), at.roleId(hashOf(mount, 'role-id', role.roleId))]
  const onSettled = () => {
    // If the removal failed, the role keeps its secret IDs.
    if (durableRole(name, call)?.uid === role.uid) return
    // No request finds secret IDs of a removed role. If this fails, `tidy/secret-id` removes them.
    setImmediate(() => void tidySecretIds(call, role.uid, true).catch(() => undefined))
  }
  return { batch: { puts: [], deletes }, releasedAliases: [role.roleId], onSettled }
}
