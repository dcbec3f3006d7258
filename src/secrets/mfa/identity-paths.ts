/** `identity/mfa`: the same methods by their IDs, and the login enforcements that name them. */
import { type Path, path, Rejection } from '../../engines/framework/engine.ts'
import { inPath, text, textList } from '../../engines/framework/fields.ts'
import { toldEnforcement } from './enforcement.ts'
import { checkedMethodName, checkedSettings, type Method, METHOD_FIELDS, toldMethod } from './mfa-method.ts'
import { checkQrSize, confirmed, destroyed, generated, removed } from './secret-operations.ts'
import { ENTITY_ID, FORCE, listedMethods, type MfaParts, PASSCODE, REPLACE } from './system-paths.ts'

/** By which is seen whether there is what an enforcement names. */
export interface MfaIdentityParts extends MfaParts {
  readonly open: MfaParts['open'] & {
    readonly mounts: { byAccessor(accessor: string): { readonly record: { readonly path: string } } | undefined }
    readonly identity: { group(id: string): object | undefined; entity(id: string): object | undefined }
  }
}

/** Of namespaces there is one. */
const NAMESPACE = { namespace_id: 'root', namespace_path: '' }
const METHOD_ID = text('ID of the method', { fallback: '' })
const BODY = { ...METHOD_FIELDS, method_name: text('Name of the method, unique') }
const LISTED_MAX = 1000

export function mfaIdentityPaths(core: MfaIdentityParts): Path[] {
  return [...methodPaths(core), ...secretPaths(core), ...enforcementPaths(core)]
}

function told(method: Method | undefined) {
  return method && { data: { ...toldMethod(method), ...NAMESPACE } }
}

function listed(core: MfaIdentityParts) {
  const data = listedMethods(core.open.mfa.methods, 'id', NAMESPACE)
  return { data }
}

function methodPaths(core: MfaIdentityParts): Path[] {
  const byId = { ...BODY, method_id: inPath('ID of the method') }
  return [
    path({ pattern: 'mfa/method', summary: 'IDs of the MFA methods', fields: {}, list: () => listed(core) }),
    path({
      pattern: 'mfa/method/totp',
      summary: 'Make a TOTP method',
      fields: BODY,
      list: () => listed(core),
      async update(input) {
        const name = input.method_name ? checkedMethodName(input.method_name) : ''
        const settings = checkedSettings(input)
        await checkQrSize(settings)
        return { data: { method_id: await core.open.mfa.write({ name }, settings) } }
      },
    }),
    path({
      pattern: 'mfa/method/totp/:method_id',
      summary: 'A TOTP method',
      fields: { ...byId, force: FORCE },
      read: ({ method_id: id }) => told(core.open.mfa.methodOfId(id)),
      async update(input) {
        const { method_id: id, method_name: given } = input
        const settings = checkedSettings(input)
        await checkQrSize(settings)
        await core.open.mfa.write({ id, ...(given && { name: checkedMethodName(given) }) }, settings)
        return undefined
      },
      delete: ({ force, method_id: id }, call) => removed(core.open, core.open.mfa.methodOfId(id), { call, force }),
    }),
    path({
      pattern: 'mfa/method/:method_id',
      summary: 'An MFA method',
      fields: { method_id: inPath('ID of the method') },
      read: ({ method_id: id }) => told(core.open.mfa.methodOfId(id)),
    }),
  ]
}

/** Throws a Rejection (400) for a method that is not there. */
function identified(core: MfaParts, id: string): Method {
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
      update: ({ method_id: id }, { caller }) => generated(mfa(), identified(core, id), caller.entityId),
    }),
    path({
      pattern: 'mfa/method/totp/confirm',
      summary: "Put the secret of the caller's entity in force by its first code",
      fields: { method_id: METHOD_ID, passcode: PASSCODE },
      update: ({ method_id: id, passcode }, { caller }) =>
        confirmed(mfa(), identified(core, id), caller.entityId, passcode),
    }),
    path({
      pattern: 'mfa/method/totp/admin-generate',
      summary: 'Generate a secret for an entity',
      fields: { method_id: METHOD_ID, entity_id: ENTITY_ID, replace: REPLACE },
      update: ({ entity_id: entityId, method_id: id, replace: replaces }) =>
        generated(mfa(), identified(core, id), entityId, { replaces }),
    }),
    path({
      pattern: 'mfa/method/totp/admin-confirm',
      summary: 'Put the secret of an entity in force by its first code',
      fields: { method_id: METHOD_ID, entity_id: ENTITY_ID, passcode: PASSCODE },
      update: ({ entity_id: entityId, method_id: id, passcode }) =>
        confirmed(mfa(), identified(core, id), entityId, passcode),
    }),
    path({
      pattern: 'mfa/method/totp/admin-destroy',
      summary: 'Destroy the secret of an entity',
      fields: { method_id: METHOD_ID, entity_id: ENTITY_ID },
      update: ({ entity_id: entityId, method_id: id }) => destroyed(mfa(), identified(core, id), entityId),
    }),
  ]
}

const ENFORCEMENT_FIELDS = {
  name: inPath('Name of the enforcement'),
  mfa_method_ids: textList('IDs of methods, of which a login needs a code of one'),
  auth_method_accessors: textList('Accessors of auth methods whose logins need it'),
  auth_method_types: textList('Types of auth methods whose logins need it'),
  identity_group_ids: textList('IDs of groups whose members need it'),
  identity_entity_ids: textList('IDs of entities that need it'),
}

function enforcementPaths(core: MfaIdentityParts): Path[] {
  return [
    path({
      pattern: 'mfa/login-enforcement',
      summary: 'Names of the login enforcements',
      fields: {},
      list() {
        const all = [...core.open.enforcements.all].sort((a, b) => (a.name < b.name ? -1 : 1))
        const info = Object.fromEntries(all.map((each) => [each.name, { ...toldEnforcement(each), ...NAMESPACE }]))
        return { data: { keys: Object.keys(info), ...(all.length > 0 && { key_info: info }) } }
      },
    }),
    path({
      pattern: 'mfa/login-enforcement/:name',
      summary: 'Which logins need a code, and of which methods',
      fields: ENFORCEMENT_FIELDS,
      read({ name }) {
        const found = core.open.enforcements.find(name)
        return found && { data: { ...toldEnforcement(found), ...NAMESPACE } }
      },
      async update(input) {
        const name = checkedMethodName(input.name)
        const methodIds = checkedIds(
          input.mfa_method_ids,
          'method id',
          (id) => core.open.mfa.methodOfId(id) !== undefined,
        )
        const { identity, mounts } = core.open
        const isAuth = (accessor: string) => mounts.byAccessor(accessor)?.record.path.startsWith('auth/') === true
        const mountAccessors = checkedIds(input.auth_method_accessors, 'auth method accessor', isAuth)
        const mountTypes = checkedIds(input.auth_method_types, 'auth method type', (type) => type !== '')
        const groupIds = checkedIds(input.identity_group_ids, 'group ID', (id) => identity.group(id) !== undefined)
        const entityIds = checkedIds(input.identity_entity_ids, 'entity ID', (id) => identity.entity(id) !== undefined)
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

/** Each once. Throws a Rejection (400) for one that names nothing. */
function checkedIds(given: readonly string[] | undefined, what: string, isThere: (id: string) => boolean): string[] {
  const ids = [...new Set(given)]
  if (ids.length > LISTED_MAX) throw new Rejection(400, `at most ${LISTED_MAX} of each kind can be named`)
  const missing = ids.find((id) => !isThere(id))
  if (missing !== undefined) throw new Rejection(400, `invalid ${what} ${JSON.stringify(missing.slice(0, 64))}`)
  return ids
}
