/** Validation of roles. Reports all faults, in the order of the fields. */
import { arnFault } from '../aws/account.ts'
import { DOCUMENT_LENGTH_MAX } from '../aws/policy-document.ts'
import type { CredentialType, CloudRole } from '../mount/role-record.ts'

const USER_PATH = /^\/([\x21-\x7f]{0,510}\/)?$/
const TAG_TEXT = /^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$/u
/** A mount identifies its users by these tags. */
const OWN_TAG = /^outpost:/i
const EXTERNAL_ID = /^[\w+=,.@:/-]{2,1224}$/
const LIST_LENGTH_MAX = 100
/** The limit of sessions and of users. */
const POLICY_ARNS_MAX = 10
/** The limit of AWS is 50. The engine adds two tags to users. */
const TAGS_MAX = 48

export function roleFaults(role: CloudRole): string[] {
  const [type] = role.types
  if (type === undefined) return ['did not supply credential_type']
  return [
    ...ttlFaults(role, type),
    ...userFaults(role, type),
    ...policyFaults(role, type),
    ...assumedFaults(role, type),
  ]
}

function ttlFaults(role: CloudRole, type: CredentialType): string[] {
  const { cacheSeconds, defaultTtlSeconds, maxTtlSeconds, mfaSerialNumber } = role
  const types = 'assumed_role, federation_token, and session_token credential types'
  const faults: string[] = []
  if (type === 'iam_user' && defaultTtlSeconds > 0) faults.push(`default_sts_ttl parameter only valid for ${types}`)
  if (type === 'iam_user' && maxTtlSeconds > 0) faults.push(`max_sts_ttl parameter only valid for ${types}`)
  if (defaultTtlSeconds > 0 && maxTtlSeconds > 0 && defaultTtlSeconds > maxTtlSeconds) {
    faults.push('"default_sts_ttl" value must be less than or equal to "max_sts_ttl" value')
  }
  if (type === 'iam_user' && cacheSeconds > 0) faults.push(`cache_ttl parameter only valid for ${types}`)
  // Each caller needs a new code.
  if (cacheSeconds > 0 && mfaSerialNumber !== '') faults.push('cannot supply cache_ttl with mfa_serial_number')
  return faults
}

function userFaults({ iamTags, permissionsBoundaryArn, userPath }: CloudRole, type: CredentialType): string[] {
  const faults: string[] = []
  if (userPath !== '' && type !== 'iam_user') faults.push('user_path parameter only valid for iam_user credential type')
  else if (userPath !== '' && !USER_PATH.test(userPath)) {
    faults.push(
      'the specified value for user_path is invalid. It must match "^\\\\/([\\\\x21-\\\\x7F]{0,510}\\\\/)?$" regexp',
    )
  }
  if (permissionsBoundaryArn !== '') {
    if (type !== 'iam_user') {
      faults.push("cannot supply permissions_boundary_arn when credential_type isn't iam_user")
    }
    const fault = arnFault(permissionsBoundaryArn, 'policy')
    if (fault !== undefined) faults.push(`invalid permissions_boundary_arn parameter: ${fault}`)
  }
  return [...faults, ...tagFaults('iam_tags', iamTags)]
}

function policyFaults(role: CloudRole, type: CredentialType): string[] {
  const { iamGroups, policyArns, policyDocument } = role
  const faults: string[] = []
  const hasPolicy = policyDocument !== '' || (policyArns ?? []).length > 0
  if (hasPolicy && type === 'session_token') {
    faults.push('cannot supply a policy or role when using credential_type session_token')
  }
  const needsOne = type === 'iam_user' || type === 'federation_token'
  if (needsOne && !hasPolicy && (iamGroups ?? []).length === 0) {
    faults.push(
      `must supply at least one of policy_arns, policy_document or iam_groups when credential_type is ${type}`,
    )
  }
  for (const arn of policyArns ?? []) {
    const fault = arnFault(arn, 'policy')
    if (fault !== undefined) faults.push(`invalid policy_arns parameter: ${truncated(arn)}: ${fault}`)
  }
  if ((policyArns ?? []).length > POLICY_ARNS_MAX) faults.push(`policy_arns has more than ${POLICY_ARNS_MAX} ARNs`)
  if ((iamGroups ?? []).length > POLICY_ARNS_MAX) faults.push(`iam_groups has more than ${POLICY_ARNS_MAX} groups`)
  if ((iamGroups ?? []).some((group) => !/^[\w+=,.@-]{1,128}$/.test(group))) {
    faults.push('iam_groups has an invalid name of an IAM group')
  }
  if (policyDocument.length > DOCUMENT_LENGTH_MAX) {
    const length = policyDocument.length
    faults.push(
      `policy_document has ${length} characters without white space; AWS takes at most ${DOCUMENT_LENGTH_MAX}`,
    )
  }
  return faults
}

function assumedFaults({ externalId, roleArns, sessionTags }: CloudRole, type: CredentialType): string[] {
  const isAssumed = type === 'assumed_role'
  const faults: string[] = []
  const arns = roleArns ?? []
  if (isAssumed && arns.length === 0) faults.push('must supply role_arns when credential_type is assumed_role')
  if (!isAssumed && arns.length > 0) faults.push("cannot supply role_arns when credential_type isn't assumed_role")
  if (arns.length > LIST_LENGTH_MAX) faults.push(`role_arns has more than ${LIST_LENGTH_MAX} ARNs`)
  for (const arn of arns) {
    const fault = arnFault(arn, 'role')
    if (fault !== undefined) faults.push(`invalid role_arns parameter: ${truncated(arn)}: ${fault}`)
  }
  if (!isAssumed && Object.keys(sessionTags ?? {}).length > 0) {
    faults.push("cannot supply session_tags when credential_type isn't assumed_role")
  }
  if (!isAssumed && externalId !== '') {
    faults.push("cannot supply external_id when credential_type isn't assumed_role")
  }
  if (isAssumed && externalId !== '' && !EXTERNAL_ID.test(externalId)) {
    faults.push('external_id must have 2 to 1224 characters of a-z A-Z 0-9 _ + = , . @ : / -')
  }
  return [...faults, ...tagFaults('session_tags', sessionTags)]
}

function tagFaults(field: string, tags: Readonly<Record<string, string>> | null): string[] {
  const pairs = Object.entries(tags ?? {})
  if (pairs.length > TAGS_MAX) return [`${field} has more than ${TAGS_MAX} tags`]
  if (pairs.some(([key]) => OWN_TAG.test(key))) return [`${field} has a tag with the reserved prefix outpost:`]
  const isWrong = pairs.some(
    ([key, value]) => key === '' || key.length > 128 || value.length > 256 || !TAG_TEXT.test(key + value),
  )
  return isWrong ? [`${field} has an invalid tag: AWS allows keys up to 128 and values up to 256 characters`] : []
}

/** Truncates a value for an error. */
function truncated(text: string): string {
  return text.length > 100 ? `${text.slice(0, 100)}…` : text
}
