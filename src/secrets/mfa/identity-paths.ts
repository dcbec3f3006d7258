/** `identity/mfa`: MFA methods by ID, and login enforcements. */
import { type Path, path, Rejection } from '../../engines/framework/engine.ts'
import { inPath, text, textList } from '../../engines/framework/fields.ts'
import { enforcementInfo } from './enforcement.ts'
import { METHOD_FIELDS, methodInfo, parseMethodName, parseSettings, type TotpMethod } from './mfa-method.ts'
import { checkQrSize, confirmSecret, destroySecret, generateSecret, removeMethod } from './secret-operations.ts'
import { ENTITY_ID, FORCE, methodList, type MfaParts, PASSCODE, REPLACE } from './system-paths.ts'

/** Looks up the mounts, groups and entities of an enforcement. */
export interface MfaIdentityParts extends MfaParts {
  readonly open: MfaParts['open'] & {
    readonly mounts: { byAccessor(accessor: string): { readonly record: { readonly path: string } } | undefined }
    readonly identity: { group(id: string): object | undefined; entity(id: string): object | undefined }
  }
}

/** The only namespace */
const NAMESPACE = { namespace_id: 'root', namespace_path: '' }
const METHOD_ID = text('ID of the method', { fallback: '' })
const BODY = { ...METHOD_FIELDS, method_name: text('Name of the method, unique') }
const LISTED_MAX = 1000

export function mfaIdentityPaths(core: MfaIdentityParts): Path[] {
  return [...methodPaths(core), ...secretPaths(core), ...enforcementPaths(core)]
}

function methodReply(method: TotpMethod | undefined) {
  return method && { data: { ...methodInfo(method), ...NAMESPACE } }
}

function listMethods(core: MfaIdentityParts) {
  return { data: methodList(core.open.mfa.methods, 'id', NAMESPACE) }
}

function methodPaths(core: MfaIdentityParts): Path[] {
  const byId = { ...BODY, method_id: inPath('ID of the method') }
  return [
    path({ pattern: 'mfa/method', summary: 'IDs of the MFA methods', fields: {}, list: () => listMethods(core) }),
    path({
      pattern: 'mfa/method/totp',
      summary: 'Create a TOTP method',
      fields: BODY,
      list: () => listMethods(core),
      async update(input) {
        const name = input.method_name ? parseMethodName(input.method_name) : ''
        const settings = parseSettings(input)
        await checkQrSize(settings)
        return { data: { method_id: await core.open.mfa.write({ name }, settings) } }
      },
    }),
    path({
      pattern: 'mfa/method/totp/:method_id',
      summary: 'Read, write or delete a TOTP method',
      fields: { ...byId, force: FORCE },
      read: ({ method_id: id }) => methodReply(core.open.mfa.methodOfId(id)),
      async update(input) {
        const { method_id: id, method_name: given } = input
        const settings = parseSettings(input)
        await checkQrSize(settings)
        await core.open.mfa.write({ id, ...(given && { name: parseMethodName(given) }) }, settings)
        return undefined
      },
      delete: ({ force, method_id: id }, call) =>
        removeMethod(core.open, core.open.mfa.methodOfId(id), { call, force }),
    }),
    path({
      pattern: 'mfa/method/:method_id',
      summary: 'Read an MFA method',
      fields: { method_id: inPath('ID of the method') },
      read: ({ method_id: id }) => methodReply(core.open.mfa.methodOfId(id)),
    }),
  ]
}

/** Throws a Rejection (400) for an unknown method. */
function requireMethod(core: MfaParts, id: string): TotpMethod {
  if (id === '') throw new Rejection(400, 'missing method ID')
  const method = core.open.mfa.methodOfId(id)
  if (!method) throw new Rejection(400, `configuration for method ID ${JSON.stringify(id)} does not exist`)
  return method
}

function secretPaths(core: MfaParts): Path[] {
  const mfa = () => core.open.mfa
  return [
    path({
      pattern: 'mfa/method/totp/generate',
      summary: "Generate a secret for the caller's entity",
      fields: { method_id: METHOD_ID },
      update: ({ method_id: id }, { caller }) => generateSecret(mfa(), requireMethod(core, id), caller.entityId),
    }),
    path({
      pattern: 'mfa/method/totp/confirm',
      summary: "Activate the secret of the caller's entity with its first code",
      fields: { method_id: METHOD_ID, passcode: PASSCODE },
      update: ({ method_id: id, passcode }, { caller }) =>
        confirmSecret(mfa(), requireMethod(core, id), caller.entityId, passcode),
    }),
    path({
      pattern: 'mfa/method/totp/admin-generate',
      summary: 'Generate a secret for an entity',
      fields: { method_id: METHOD_ID, entity_id: ENTITY_ID, replace: REPLACE },
      update: ({ entity_id: entityId, method_id: id, replace: replaces }) =>
        generateSecret(mfa(), requireMethod(core, id), entityId, { replaces }),
    }),
    path({
      pattern: 'mfa/method/totp/admin-confirm',
      summary: 'Activate the secret of an entity with its first code',
      fields: { method_id: METHOD_ID, entity_id: ENTITY_ID, passcode: PASSCODE },
      update: ({ entity_id: entityId, method_id: id, passcode }) =>
        confirmSecret(mfa(), requireMethod(core, id), entityId, passcode),
    }),
    path({
      pattern: 'mfa/method/totp/admin-destroy',
      summary: 'Destroy the secret of an entity',
      fields: { method_id: METHOD_ID, entity_id: ENTITY_ID },
      update: ({ entity_id: entityId, method_id: id }) => destroySecret(mfa(), requireMethod(core, id), entityId),
    }),
  ]
}

const ENFORCEMENT_FIELDS = {
  name: inPath('Name of the enforcement'),
  mfa_method_ids: textList('IDs of MFA methods; a login requires a code of one of them'),
  auth_method_accessors: textList('Accessors of auth methods whose logins require a code'),
  auth_method_types: textList('Types of auth methods whose logins require a code'),
  identity_group_ids: textList('IDs of groups whose members require a code'),
  identity_entity_ids: textList('IDs of entities that require a code'),
}

function enforcementPaths(core: MfaIdentityParts): Path[] {
  return [
    path({
      pattern: 'mfa/login-enforcement',
      summary: 'List the login enforcements',
      fields: {},
      list() {
        const all = [...core.open.enforcements.all].sort((a, b) => (a.name < b.name ? -1 : 1))
        const info = Object.fromEntries(all.map((each) => [each.name, { ...enforcementInfo(each), ...NAMESPACE }]))
        return { data: { keys: Object.keys(info), ...(all.length > 0 && { key_info: info }) } }
      },
    }),
    path({
      pattern: 'mfa/login-enforcement/:name',
      summary: 'Read, write or delete a login enforcement',
      fields: ENFORCEMENT_FIELDS,
      read({ name }) {
        const enforcement = core.open.enforcements.find(name)
        return enforcement && { data: { ...enforcementInfo(enforcement), ...NAMESPACE } }
      },
      async update(input) {
        const name = parseMethodName(input.name)
        const methodIds = parseIds(
          input.mfa_method_ids,
          'method id',
          (id) => core.open.mfa.methodOfId(id) !== undefined,
        )
        const { identity, mounts } = core.open
        const isAuth = (accessor: string) => mounts.byAccessor(accessor)?.record.path.startsWith('auth/') === true
        const mountAccessors = parseIds(input.auth_method_accessors, 'auth method accessor', isAuth)
        const mountTypes = parseIds(input.auth_method_types, 'auth method type', (type) => type !== '')
        const groupIds = parseIds(input.identity_group_ids, 'group ID', (id) => identity.group(id) !== undefined)
        const entityIds = parseIds(input.identity_entity_ids, 'entity ID', (id) => identity.entity(id) !== undefined)
        if (methodIds.length === 0) throw new Rejection(400, 'missing method ids')
        if ([mountAccessors, mountTypes, groupIds, entityIds].every(({ length }) => length === 0)) {
          throw new Rejection(
            400,
            'One of auth_method_accessors, auth_method_types, identity_group_ids, identity_entity_ids must be specified',
          )
        }
        await core.open.enforcements.write({ name, methodIds, mountAccessors, mountTypes, groupIds, entityIds })
        return undefined
      },
      async delete({ name }) {
        await core.open.enforcements.remove(name)
        return undefined
      },
    }),
  ]
}

/** Removes duplicates. Throws a Rejection (400) for an unknown ID. */
function parseIds(given: readonly string[] | undefined, noun: string, exists: (id: string) => boolean): string[] {
  const ids = [...new Set(given)]
  if (ids.length > LISTED_MAX) throw new Rejection(400, `at most ${LISTED_MAX} ${noun}s`)
  const missing = ids.find((id) => !exists(id))
  if (missing !== undefined) throw new Rejection(400, `invalid ${noun} ${JSON.stringify(missing.slice(0, 64))}`)
  return ids
}
