/** Credentials of STS, which expire by themselves: assumed roles, federation tokens and session tokens. */
import type { Credentials } from '@aws-sdk/client-sts'
import { type EngineCall, Rejection, type Reply } from '../../framework/engine.ts'
import { rejectionOf, invalidResponse } from '../aws/aws-failure.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { goQuote } from '../templates/template-functions.ts'
import { groupPolicies } from '../aws/group-policies.ts'
import { mergedPolicies, PolicyMergeError } from '../aws/policy-document.ts'
import type { CloudRole } from '../mount/role-record.ts'
import { normalizeName, usernameOf } from '../templates/username.ts'

const DEFAULT_TTL_SECONDS = 3600
const SESSION_NAME_MAX = 64

export interface SessionInput {
  readonly role_arn: string | undefined
  readonly role_session_name: string | undefined
  readonly ttl: number | undefined
  readonly mfa_code: string | undefined
}

/** The policies of a session. */
export interface SessionPolicy {
  readonly Policy?: string
  readonly PolicyArns?: { arn: string }[]
}

/** The duration to request from AWS. */
function durationOf(role: CloudRole, ttl: number | undefined, mountMaxSeconds: number): number {
  const requestedSeconds = ttl ?? (role.defaultTtlSeconds > 0 ? role.defaultTtlSeconds : DEFAULT_TTL_SECONDS)
  return Math.min(requestedSeconds, role.maxTtlSeconds > 0 ? role.maxTtlSeconds : mountMaxSeconds)
}

/** The policies of a role and of its groups, for a session. Rejects with a Rejection. */
export async function sessionPolicyOf(role: CloudRole, call: EngineCall): Promise<SessionPolicy> {
  const { aws } = CloudMount.of(call)
  const groups = role.iamGroups ?? []
  try {
    const { arns, documents } = await groupPolicies(() => aws.iam, groups, call.signal)
    const Policy = documents.length > 0 ? mergedPolicies([...documents, role.policyDocument]) : role.policyDocument
    const all = [...(role.policyArns ?? []), ...arns]
    return { ...(Policy !== '' && { Policy }), ...(all.length > 0 && { PolicyArns: all.map((arn) => ({ arn })) }) }
  } catch (error) {
    if (error instanceof PolicyMergeError) throw new Rejection(400, error.message)
    throw rejectionOf('', error)
  }
}

/** The ARN to assume. Throws a Rejection (400) if the role does not allow it. */
function selectedArn(role: CloudRole, requested = ''): string {
  const arns = role.roleArns ?? []
  if (requested === '') {
    const [only] = arns
    if (only !== undefined && arns.length === 1) return only
    throw new Rejection(400, 'did not supply a role_arn parameter and unable to determine one')
  }
  if (arns.includes(requested)) return requested
  throw new Rejection(
    400,
    `role_arn ${goQuote(requested)} not in allowed role arns for Vault role ${goQuote(role.name)}`,
  )
}

/** Throws a Rejection. */
export function assumeRequest(
  role: CloudRole,
  input: Pick<SessionInput, 'role_session_name' | 'ttl'> & { readonly arn: string; readonly policy: SessionPolicy },
  call: EngineCall,
) {
  const { aws } = CloudMount.of(call)
  const given = normalizeName(input.role_session_name ?? '').slice(0, SESSION_NAME_MAX)
  const name = given === '' ? usernameOf(aws.config.usernameTemplate, 'IAM', namesOf(role, call)) : given
  const Tags = Object.entries(role.sessionTags ?? {}).map(([Key, Value]) => ({ Key, Value }))
  return {
    RoleArn: input.arn,
    RoleSessionName: name,
    DurationSeconds: durationOf(role, input.ttl, call.mount.maxLeaseSeconds),
    ...input.policy,
    ...(Tags.length > 0 && { Tags }),
    ...(role.externalId !== '' && { ExternalId: role.externalId }),
  }
}

export async function assumedRole(role: CloudRole, input: SessionInput, call: EngineCall): Promise<Reply> {
  const { aws } = CloudMount.of(call)
  const arn = selectedArn(role, input.role_arn)
  const request = assumeRequest(role, { ...input, arn, policy: await sessionPolicyOf(role, call) }, call)
  const { signal } = call
  try {
    const { AssumedRoleUser, Credentials: credentials } = await aws.sts(
      (client) => client.call((sts, options) => sts.assumeRole(request, options), { signal }),
      signal,
    )
    return sessionReply(role, call, credentials, { arn: AssumedRoleUser?.Arn ?? '' }, request.DurationSeconds)
  } catch (error) {
    throw rejectionOf('Error assuming role', error)
  }
}

/** Rejects with a Rejection. */
export async function federationRequest(role: CloudRole, ttl: number | undefined, call: EngineCall) {
  const { aws } = CloudMount.of(call)
  const policy = await sessionPolicyOf(role, call)
  if (policy.Policy === undefined && policy.PolicyArns === undefined) {
    throw new Rejection(
      400,
      'must specify at least one of policy_arns or policy_document with federation_token credential_type',
    )
  }
  const Name = usernameOf(aws.config.usernameTemplate, 'STS', { displayName: '', policyName: '', nowMs: call.nowMs })
  return { Name, DurationSeconds: durationOf(role, ttl, call.mount.maxLeaseSeconds), ...policy }
}

export async function federationToken(role: CloudRole, input: SessionInput, call: EngineCall): Promise<Reply> {
  const { aws } = CloudMount.of(call)
  const request = await federationRequest(role, input.ttl, call)
  const { signal } = call
  try {
    const { Credentials: credentials } = await aws.sts(
      (client) => client.call((sts, options) => sts.getFederationToken(request, options), { signal }),
      signal,
    )
    return sessionReply(role, call, credentials, {}, request.DurationSeconds)
  } catch (error) {
    throw rejectionOf('Error generating STS keys', error)
  }
}

/** Throws a Rejection. */
export function sessionRequest(role: CloudRole, input: Pick<SessionInput, 'mfa_code' | 'ttl'>, { mount }: EngineCall) {
  const code = input.mfa_code ?? ''
  if (role.mfaSerialNumber !== '' && code === '') {
    throw new Rejection(400, 'mfa_code is required: the role has an mfa_serial_number')
  }
  return {
    DurationSeconds: durationOf(role, input.ttl, mount.maxLeaseSeconds),
    ...(role.mfaSerialNumber !== '' && { SerialNumber: role.mfaSerialNumber }),
    ...(code !== '' && { TokenCode: code }),
  }
}

export async function sessionToken(role: CloudRole, input: SessionInput, call: EngineCall): Promise<Reply> {
  const { aws } = CloudMount.of(call)
  const request = sessionRequest(role, input, call)
  const { signal } = call
  try {
    const { Credentials: credentials } = await aws.sts(
      // A code is valid once: a retry would be refused.
      (client) =>
        client.call((sts, options) => sts.getSessionToken(request, options), {
          signal,
          isOnce: request.TokenCode !== undefined,
        }),
      signal,
    )
    return sessionReply(role, call, credentials, {}, request.DurationSeconds)
  } catch (error) {
    throw rejectionOf('Error generating STS keys', error)
  }
}

/** The variables of the username template. */
export function namesOf({ name }: CloudRole, { caller, nowMs }: EngineCall) {
  return { displayName: caller.displayName, policyName: name, nowMs }
}

function sessionReply(
  role: CloudRole,
  { now }: EngineCall,
  credentials: Credentials | undefined,
  data: Readonly<Record<string, unknown>>,
  requestedSeconds: number,
): Reply {
  const { AccessKeyId, Expiration, SecretAccessKey, SessionToken } = credentials ?? {}
  if (!AccessKeyId || !SecretAccessKey || !SessionToken || !Expiration) throw invalidResponse('no credentials')
  const expiresAtMs = Expiration.getTime()
  // Counts from the response, when the lease starts. At most the requested duration, in case the clock of AWS is ahead.
  const ttlSeconds = Math.max(1, Math.min(requestedSeconds, Math.trunc((expiresAtMs - now()) / 1000)))
  return {
    data: {
      access_key: AccessKeyId,
      secret_key: SecretAccessKey,
      session_token: SessionToken,
      security_token: SessionToken,
      ...data,
      ttl: ttlSeconds,
    },
    lease: { ttlSeconds, maxTtlSeconds: 0, renewable: false, internal: { is_sts: true, policy: role.name } },
  }
}
