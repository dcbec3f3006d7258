/** `roles/…`: the roles of a mount. */
import { type EngineCall, errorList, path, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { commaList, duration, inPath, type EngineInput, text, textMap } from '../../framework/fields.ts'
import { runSliced } from '../../../platform/sliced-work.ts'
import { arnFault } from '../aws/account.ts'
import { goQuote } from '../templates/template-functions.ts'
import { checkName } from '../aws/entries.ts'
import { compactJson } from '../aws/policy-document.ts'
import { roleFaults } from './role-validation.ts'
import {
  CREDENTIAL_TYPES,
  type CredentialType,
  newRole,
  type CloudRole,
  roles,
  roleResponse,
} from '../mount/role-record.ts'

const LEGACY_WARNING = 'Detected use of legacy role or policy parameter. Please upgrade to use the new parameters.'

const FIELDS = {
  name: inPath('Name of the role'),
  credential_type: text('iam_user, assumed_role, federation_token or session_token'),
  role_arns: commaList('ARNs of roles to assume'),
  policy_arns: commaList('ARNs of managed policies'),
  policy_document: text('IAM policy document in JSON'),
  iam_groups: commaList('IAM groups'),
  iam_tags: textMap('Tags of users'),
  session_tags: textMap('Tags of sessions of assumed roles'),
  external_id: text('External ID for assuming roles'),
  default_sts_ttl: duration('Default duration of sessions'),
  max_sts_ttl: duration('Maximum duration of sessions'),
  user_path: text('IAM path of users; / unless set'),
  permissions_boundary_arn: text('ARN of the permissions boundary of users'),
  mfa_serial_number: text('Serial number or ARN of the MFA device of the root credentials'),
  cache_ttl: duration('Time for which a session is shared between callers; not shared unless set'),
  policy: text('Deprecated: use policy_document'),
  arn: text('Deprecated: use role_arns or policy_arns'),
}

type RoleInput = EngineInput<typeof FIELDS>

export const rolePaths: readonly Path[] = [
  path({
    pattern: 'roles',
    summary: 'List the roles',
    fields: {},
    list: async (_input, call) => {
      const all = await runSliced(roles.all(call.storage), call)
      return { data: { keys: all.map(({ name }) => name) } }
    },
  }),
  path({
    pattern: 'roles/:name',
    summary: 'Read, write or delete a role',
    fields: FIELDS,
    exists: ({ name }, call) => pendingRole(name, call) !== undefined,
    read({ name }, { mount, storage }) {
      checkName(name)
      const role = roles.read((each) => storage.get(each), mount, name)
      return role && { data: roleResponse(role) }
    },
    update: write,
    delete({ name }, call) {
      checkName(name)
      if (!pendingRole(name, call)) throw new Rejection(404)
      return { batch: { puts: [], deletes: [roles.path(call.mount, name)] } }
    },
  }),
]

function pendingRole(name: string, { mount, storage }: EngineCall): CloudRole | undefined {
  return roles.read((each) => storage.pending(each), mount, name)
}

function write(input: RoleInput, call: EngineCall): Reply {
  checkName(input.name)
  const before = pendingRole(input.name, call) ?? newRole(input.name)
  const isLegacy = input.policy !== undefined || input.arn !== undefined
  const warnings: string[] = []
  const role = isLegacy ? legacyRole(input) : changedRole(before, input)
  if (before.invalidData !== '') warnings.push(`Invalid data of ${goQuote(before.invalidData)} cleared out of role`)
  if (isLegacy) warnings.push(LEGACY_WARNING)
  const faults = role.types.length > 1 ? [] : role.invalidData === '' ? roleFaults(role) : []
  if (faults.length > 0) {
    throw new Rejection(400, `error(s) validating supplied role data: ${goQuote(errorList(faults))}`)
  }
  return { batch: { puts: [roles.put(call.mount, role)], deletes: [] }, ...(warnings.length > 0 && { warnings }) }
}

function typeOf(given: string): CredentialType {
  const type = CREDENTIAL_TYPES.find((each) => each === given)
  if (type) return type
  const why = given === '' ? 'did not supply credential_type' : `unrecognized credential type: ${given.slice(0, 100)}`
  throw new Rejection(400, `error(s) validating supplied role data: ${goQuote(errorList([why]))}`)
}

/** Safe for names such as `__proto__`. */
function recordOf(map: ReadonlyMap<string, string>): Record<string, string> {
  return Object.fromEntries(map)
}

/** Fields that are not given keep their values. */
function changedRole(before: CloudRole, input: RoleInput): CloudRole {
  const given = input.policy_document ?? before.policyDocument
  const document = given === '' ? '' : compactJson(given)
  if (document === undefined) throw new Rejection(400, `cannot parse policy document: ${goQuote(shortened(given))}`)
  const { iam_tags: iamTags, session_tags: sessionTags } = input
  return {
    format: 1,
    name: before.name,
    types: input.credential_type === undefined ? before.types.slice(0, 1) : [typeOf(input.credential_type)],
    policyArns: input.policy_arns ? [...input.policy_arns] : before.policyArns,
    roleArns: input.role_arns ? [...input.role_arns] : before.roleArns,
    iamGroups: input.iam_groups ? [...input.iam_groups] : before.iamGroups,
    policyDocument: document,
    iamTags: iamTags ? recordOf(iamTags) : before.iamTags,
    sessionTags: sessionTags ? recordOf(sessionTags) : before.sessionTags,
    externalId: input.external_id ?? before.externalId,
    defaultTtlSeconds: input.default_sts_ttl ?? before.defaultTtlSeconds,
    maxTtlSeconds: input.max_sts_ttl ?? before.maxTtlSeconds,
    userPath: input.user_path ?? before.userPath,
    permissionsBoundaryArn: input.permissions_boundary_arn ?? before.permissionsBoundaryArn,
    mfaSerialNumber: input.mfa_serial_number ?? before.mfaSerialNumber,
    cacheSeconds: input.cache_ttl ?? before.cacheSeconds,
    isLegacy: false,
    invalidData: '',
  }
}

/** Fields that cannot be combined with the legacy ones. */
const NOT_WITH_LEGACY = [
  'role_arns',
  'policy_arns',
  'policy_document',
  'default_sts_ttl',
  'max_sts_ttl',
  'user_path',
  'permissions_boundary_arn',
  'iam_groups',
  'iam_tags',
  'mfa_serial_number',
  'session_tags',
  'external_id',
  'cache_ttl',
] as const

/** A role with the legacy parameters, which replaces the previous role. */
function legacyRole(input: RoleInput): CloudRole {
  const { arn, name, policy } = input
  if (policy !== undefined && arn !== undefined) {
    throw new Rejection(400, 'only one of policy or arn should be provided')
  }
  if (input.credential_type !== undefined) {
    throw new Rejection(400, 'cannot supply deprecated role or policy parameters with an explicit credential_type')
  }
  const conflicting = NOT_WITH_LEGACY.find((field) => input[field] !== undefined)
  if (conflicting !== undefined) {
    throw new Rejection(400, `cannot supply deprecated role or policy parameters with ${conflicting}`)
  }
  const base: CloudRole = { ...newRole(name), isLegacy: true }
  const data = policy ?? arn ?? ''
  const given = data.trim()
  if (arnFault(given, 'role') === undefined) return { ...base, types: ['assumed_role'], roleArns: [given] }
  if (arnFault(given, 'policy') === undefined) return { ...base, types: ['iam_user'], policyArns: [given] }
  if (arn !== undefined || given.startsWith('arn:')) throw new Rejection(400, foreignArn(given))
  const document = compactJson(data)
  if (document === undefined) throw new Rejection(400, `unable to parse supplied data: ${goQuote(shortened(data))}`)
  return { ...base, types: ['iam_user', 'federation_token'], policyDocument: document }
}

function foreignArn(given: string): string {
  const accepted = 'a role (arn:aws:iam::ACCOUNT:role/NAME) or of a policy (arn:aws:iam::ACCOUNT:policy/NAME)'
  return `arn: ${goQuote(shortened(given))} is not accepted: it must be the ARN of ${accepted}`
}

function shortened(given: string): string {
  return given.length > 200 ? `${given.slice(0, 200)}…` : given
}
