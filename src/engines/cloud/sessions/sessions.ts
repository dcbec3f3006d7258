/** Credentials of STS, which end by themselves: of assumed roles, federation tokens and session tokens. */
import type { Credentials } from '@aws-sdk/client-sts'
import { type EngineCall, Rejection, type Reply } from '../../framework/engine.ts'
import { rejectionOf, strangeAnswer } from '../aws/aws-failure.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { goQuote } from '../templates/go-quote.ts'
import { groupPolicies } from '../aws/group-policies.ts'
import { merged, PolicyFault } from '../aws/policy-document.ts'
import type { Role } from '../mount/role-record.ts'
import { normalised, usernameOf } from '../mount/username.ts'

const DEFAULT_TTL_SECONDS = 3600
const SESSION_NAME_MAX = 64

export interface SessionInput {
  readonly role_arn: string | undefined
  readonly role_session_name: string | undefined
  readonly ttl: number | undefined
  readonly mfa_code: string | undefined
}

/** What a session's policy is made of: undefined where it has none. */
export interface Filter {
  readonly Policy?: string
  readonly PolicyArns?: { arn: string }[]
}

/** Seconds that AWS is asked for. */
export function durationOf(role: Role, ttl: number | undefined, mountMaxSeconds: number): number {
  const wished = ttl ?? (role.defaultTtlSeconds > 0 ? role.defaultTtlSeconds : DEFAULT_TTL_SECONDS)
  return Math.min(wished, role.maxTtlSeconds > 0 ? role.maxTtlSeconds : mountMaxSeconds)
}

/** What the policies of a role, and of its groups, make of a session. Rejects with a Rejection. */
export async function filterOf(role: Role, call: EngineCall): Promise<Filter> {
  const { aws } = CloudMount.of(call)
  const groups = role.iamGroups ?? []
  try {
    const { arns, documents } = await groupPolicies(() => aws.iam, groups, call.signal)
    const Policy = documents.length > 0 ? merged([...documents, role.policyDocument]) : role.policyDocument
    const all = [...(role.policyArns ?? []), ...arns]
    return { ...(Policy !== '' && { Policy }), ...(all.length > 0 && { PolicyArns: all.map((arn) => ({ arn })) }) }
  } catch (error) {
    if (error instanceof PolicyFault) throw new Rejection(400, error.message)
    throw rejectionOf('', error)
  }
}

/** The ARN that is to be assumed. Throws a Rejection (400) where that is none of the role's. */
function chosenArn(role: Role, wished = ''): string {
  const arns = role.roleArns ?? []
  if (wished === '') {
    const [only] = arns
    if (only !== undefined && arns.length === 1) return only
    throw new Rejection(400, 'did not supply a role_arn parameter and unable to determine one')
  }
  if (arns.includes(wished)) return wished
  throw new Rejection(400, `role_arn ${goQuote(wished)} not in allowed role arns for Vault role ${goQuote(role.name)}`)
}

/** What AssumeRole is asked. Throws a Rejection. */
export function assumeRequest(
  role: Role,
  input: Pick<SessionInput, 'role_session_name' | 'ttl'> & { readonly arn: string; readonly filter: Filter },
  call: EngineCall,
) {
  const { aws } = CloudMount.of(call)
  const given = normalised(input.role_session_name ?? '').slice(0, SESSION_NAME_MAX)
  const name = given === '' ? usernameOf(aws.config.usernameTemplate, 'IAM', namesOf(role, call)) : given
  const Tags = Object.entries(role.sessionTags ?? {}).map(([Key, Value]) => ({ Key, Value }))
  return {
    RoleArn: input.arn,
    RoleSessionName: name,
    DurationSeconds: durationOf(role, input.ttl, call.mount.maxLeaseSeconds),
    ...input.filter,
    ...(Tags.length > 0 && { Tags }),
    ...(role.externalId !== '' && { ExternalId: role.externalId }),
  }
}

export async function assumedRole(role: Role, input: SessionInput, call: EngineCall): Promise<Reply> {
  const { aws } = CloudMount.of(call)
  const arn = chosenArn(role, input.role_arn)
  const request = assumeRequest(role, { ...input, arn, filter: await filterOf(role, call) }, call)
  const { signal } = call
  try {
    const { AssumedRoleUser, Credentials: made } = await aws.sts(
      (client) => client.call((sts, options) => sts.assumeRole(request, options), { signal }),
      signal,
    )
    return sessionReply(role, call, made, { arn: AssumedRoleUser?.Arn ?? '' }, request.DurationSeconds)
  } catch (error) {
    throw rejectionOf('Error assuming role', error)
  }
}

/** What GetFederationToken is asked. Rejects with a Rejection. */
export async function federationRequest(role: Role, ttl: number | undefined, call: EngineCall) {
  const { aws } = CloudMount.of(call)
  const filter = await filterOf(role, call)
  if (filter.Policy === undefined && filter.PolicyArns === undefined) {
    throw new Rejection(
      400,
      'must specify at least one of policy_arns or policy_document with federation_token credential_type',
    )
  }
  const Name = usernameOf(aws.config.usernameTemplate, 'STS', { displayName: '', policyName: '', nowMs: call.nowMs })
  return { Name, DurationSeconds: durationOf(role, ttl, call.mount.maxLeaseSeconds), ...filter }
}

export async function federationToken(role: Role, input: SessionInput, call: EngineCall): Promise<Reply> {
  const { aws } = CloudMount.of(call)
  const request = await federationRequest(role, input.ttl, call)
  const { signal } = call
  try {
    const { Credentials: made } = await aws.sts(
      (client) => client.call((sts, options) => sts.getFederationToken(request, options), { signal }),
      signal,
    )
    return sessionReply(role, call, made, {}, request.DurationSeconds)
  } catch (error) {
    throw rejectionOf('Error generating STS keys', error)
  }
}

/** What GetSessionToken is asked. Throws a Rejection. */
export function sessionRequest(role: Role, input: Pick<SessionInput, 'mfa_code' | 'ttl'>, { mount }: EngineCall) {
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

export async function sessionToken(role: Role, input: SessionInput, call: EngineCall): Promise<Reply> {
  const { aws } = CloudMount.of(call)
  const request = sessionRequest(role, input, call)
  const { signal } = call
  try {
    const { Credentials: made } = await aws.sts(
      // A code is good once: a second request with it would be refused.
      (client) =>
        client.call((sts, options) => sts.getSessionToken(request, options), {
          signal,
          isOnce: request.TokenCode !== undefined,
        }),
      signal,
    )
    return sessionReply(role, call, made, {}, request.DurationSeconds)
  } catch (error) {
    throw rejectionOf('Error generating STS keys', error)
  }
}

/** What names are made of. */
export function namesOf({ name }: Role, { caller, nowMs }: EngineCall) {
  return { displayName: caller.displayName, policyName: name, nowMs }
}

function sessionReply(
  role: Role,
  { now }: EngineCall,
  made: Credentials | undefined,
  more: Readonly<Record<string, unknown>>,
  askedSeconds: number,
): Reply {
  const { AccessKeyId, Expiration, SecretAccessKey, SessionToken } = made ?? {}
  if (!AccessKeyId || !SecretAccessKey || !SessionToken || !Expiration) throw strangeAnswer('no credentials')
  const expiresAtMs = Expiration.getTime()
  // From the arrival of the answer, when the lease begins. Where the clock of AWS is ahead: not longer than what was asked for.
  const ttlSeconds = Math.max(1, Math.min(askedSeconds, Math.trunc((expiresAtMs - now()) / 1000)))
  return {
    data: {
      access_key: AccessKeyId,
      secret_key: SecretAccessKey,
      session_token: SessionToken,
      security_token: SessionToken,
      ...more,
      ttl: ttlSeconds,
    },
    lease: { ttlSeconds, maxTtlSeconds: 0, renewable: false, internal: { is_sts: true, policy: role.name } },
  }
}
