/** The stored roles of a mount. */
import * as v from 'valibot'
import { textRecord } from '../../framework/records.ts'
import { ENTRY_PATHS, NamedRecords } from '../aws/entries.ts'

export const CREDENTIAL_TYPES = ['iam_user', 'assumed_role', 'federation_token', 'session_token'] as const
export type CredentialType = (typeof CREDENTIAL_TYPES)[number]

const list = v.nullable(v.array(v.string()))

const roleSchema = v.object({
  format: v.literal(1),
  name: v.string(),
  /** Two for a role with the legacy parameter `policy`; none if its data is invalid. */
  types: v.array(v.picklist(CREDENTIAL_TYPES)),
  /** Null: never set. */
  policyArns: list,
  roleArns: list,
  iamGroups: list,
  /** Compact JSON text; empty for none. */
  policyDocument: v.string(),
  iamTags: v.nullable(textRecord),
  sessionTags: v.nullable(textRecord),
  externalId: v.string(),
  defaultTtlSeconds: v.number(),
  maxTtlSeconds: v.number(),
  userPath: v.string(),
  permissionsBoundaryArn: v.string(),
  mfaSerialNumber: v.string(),
  /** Time for which a session is shared between callers. */
  cacheSeconds: v.optional(v.number(), 0),
  /** With legacy parameters: `creds/` issues users only, `sts/` sessions only. */
  isLegacy: v.boolean(),
  /** Invalid value of the legacy parameter `arn`. */
  invalidData: v.string(),
})

export type CloudRole = v.InferOutput<typeof roleSchema>

export const roles = new NamedRecords(ENTRY_PATHS.roles, roleSchema, 'a role')

export function newRole(name: string): CloudRole {
  return {
    format: 1,
    name,
    types: [],
    policyArns: null,
    roleArns: null,
    iamGroups: null,
    policyDocument: '',
    iamTags: null,
    sessionTags: null,
    externalId: '',
    defaultTtlSeconds: 0,
    maxTtlSeconds: 0,
    userPath: '',
    permissionsBoundaryArn: '',
    mfaSerialNumber: '',
    cacheSeconds: 0,
    isLegacy: false,
    invalidData: '',
  }
}

export function roleResponse(role: CloudRole): Record<string, unknown> {
  return {
    credential_type: role.types.join(','),
    policy_arns: role.policyArns,
    role_arns: role.roleArns,
    policy_document: role.policyDocument,
    iam_groups: role.iamGroups,
    iam_tags: role.iamTags,
    session_tags: role.sessionTags,
    external_id: role.externalId,
    default_sts_ttl: role.defaultTtlSeconds,
    max_sts_ttl: role.maxTtlSeconds,
    user_path: role.userPath,
    permissions_boundary_arn: role.permissionsBoundaryArn,
    mfa_serial_number: role.mfaSerialNumber,
    ...(role.cacheSeconds > 0 && { cache_ttl: role.cacheSeconds }),
    ...(role.invalidData !== '' && { invalid_data: role.invalidData }),
  }
}
