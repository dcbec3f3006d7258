/** STS actions of the test endpoint, with the limits of AWS. */
import type { Role, Session } from './account.ts'
import { type Action, type ActionCall, checkPolicy } from './iam-actions.ts'
import { verifiedIdentity } from './oidc-provider.ts'
import { AwsError, type Form, validation, type Xml } from './wire.ts'

function denied(text: string): AwsError {
  return new AwsError('AccessDenied', text, 403)
}

function callerArn({ account, caller }: ActionCall): string {
  if (caller.session) return caller.session.arn
  const { user } = caller
  return user ? account.arn('user', user.path, user.name) : ''
}

/** Requested seconds within bounds. */
function duration(form: Form, fallback: number, most: number): number {
  const seconds = form.integer('DurationSeconds') ?? fallback
  if (seconds < 900 || seconds > most) {
    throw validation(
      `1 validation error detected: Value '${seconds}' at 'durationSeconds' failed to satisfy constraint: Member must have value between 900 and ${most}`,
    )
  }
  return seconds
}

function policies(form: Form): Record<string, string> {
  const policy = form.optional('Policy')
  const arns = form.list('PolicyArns', 'arn')
  if (arns.length > 10) throw validation("Value at 'policyArns' must have length less than or equal to 10")
  if (policy !== undefined && policy.length > 2048) {
    throw validation(
      "Value at 'policy' failed to satisfy constraint: Member must have length less than or equal to 2048",
    )
  }
  if (policy !== undefined) checkPolicy(policy, 2048)
  return { ...(policy !== undefined && { Policy: policy }), ...(arns.length > 0 && { PolicyArns: arns.join(',') }) }
}

function credentials({ expiresAtMs, keyId, secret, token }: Session): Xml {
  return { AccessKeyId: keyId, SecretAccessKey: secret, SessionToken: token, Expiration: new Date(expiresAtMs) }
}

function assumed(call: ActionCall, role: Role, user: string | undefined, most: number): Xml {
  const { account, form, nowMs } = call
  const name = form.required('RoleSessionName')
  if (!/^[\w+=,.@-]{2,64}$/.test(name)) {
    throw validation(`1 validation error detected: Value '${name}' at 'roleSessionName' failed to satisfy constraint`)
  }
  const seconds = role.webSeconds ?? duration(form, 3600, 43_200)
  if (seconds > most)
    throw validation('The requested DurationSeconds exceeds the MaxSessionDuration set for this role.')
  const tags = form.tags()
  if (tags.size > 0 && role.allowsTags !== true)
    throw denied(`not authorized to perform: sts:TagSession on ${role.arn}`)
  const arn = `${role.arn.replace(':iam:', ':sts:').replace(':role/', ':assumed-role/')}/${name}`
  const request = { ...policies(form), RoleSessionName: name, DurationSeconds: String(seconds) }
  const tagged = Object.fromEntries([...tags].map(([key, value]) => [`tag:${key}`, value]))
  const expiresAtMs = nowMs + seconds * 1000
  const whole = { ...request, ...tagged }
  const session = account.addSession({ arn, kind: 'assumed-role', user, expiresAtMs, request: whole })
  const AssumedRoleUser = { AssumedRoleId: `AROAEXAMPLE:${name}`, Arn: arn }
  return { Credentials: credentials(session), AssumedRoleUser, PackedPolicySize: 6 }
}

function assumeRole(call: ActionCall): Xml {
  const { account, caller, form } = call
  const arn = form.required('RoleArn')
  const me = callerArn(call)
  const role = account.roles.get(arn)
  // A trusted role is trusted in each of its sessions.
  const myRole = me.replace(/^(arn:[^:]+):sts::(\d+):assumed-role\/([^/]+)\/.*$/, '$1:iam::$2:role/$3')
  const trusted = ['*', me, myRole, `arn:aws:iam::${account.id}:root`]
  const isTrusted = role?.principals.some((each) => trusted.includes(each))
  const isExpected = role?.externalId === undefined || role.externalId === form.optional('ExternalId')
  if (!role || !isTrusted || !isExpected) {
    throw denied(`User: ${me} is not authorized to perform: sts:AssumeRole on resource: ${arn}`)
  }
  const most = caller.session?.kind === 'assumed-role' ? 3600 : (role.maxSeconds ?? 3600)
  return assumed(call, role, undefined, most)
}

async function assumeRoleWithWebIdentity(call: ActionCall): Promise<Xml> {
  const { account, form, nowMs } = call
  const role = account.roles.get(form.required('RoleArn'))
  const { audience, issuer, subject } = await verifiedIdentity(
    form.required('WebIdentityToken'),
    account.oidcProviders,
    nowMs,
  )
  const isMeant = role?.audience === undefined || role.audience === audience
  const isNamed = role?.subject === undefined || role.subject === subject
  if (!role?.principals.includes(issuer) || !isMeant || !isNamed) {
    throw denied('Not authorized to perform sts:AssumeRoleWithWebIdentity')
  }
  const made = assumed(call, role, undefined, role.maxSeconds ?? 3600) as Readonly<Record<string, Xml>>
  return { ...made, SubjectFromWebIdentityToken: subject, Audience: audience, Provider: issuer }
}

function ownUser({ caller }: ActionCall, action: string) {
  if (caller.session || !caller.user) throw denied(`Cannot call ${action} with session credentials`)
  return caller.user
}

function getFederationToken(call: ActionCall): Xml {
  const { account, form, nowMs } = call
  const user = ownUser(call, 'GetFederationToken')
  const name = form.required('Name')
  if (!/^[\w+=,.@-]{2,32}$/.test(name)) throw validation(`Value '${name}' at 'name' failed to satisfy constraint`)
  const seconds = duration(form, 43_200, 129_600)
  const request = { ...policies(form), Name: name, DurationSeconds: String(seconds) }
  const arn = `arn:aws:sts::${account.id}:federated-user/${name}`
  const expiresAtMs = nowMs + seconds * 1000
  const session = account.addSession({ arn, kind: 'federated', user: user.name, expiresAtMs, request })
  return {
    Credentials: credentials(session),
    FederatedUser: { FederatedUserId: `${account.id}:${name}`, Arn: arn },
    PackedPolicySize: 6,
  }
}

function getSessionToken(call: ActionCall): Xml {
  const { account, form, nowMs } = call
  const user = ownUser(call, 'GetSessionToken')
  const seconds = duration(form, 43_200, 129_600)
  const [serial, code] = [form.optional('SerialNumber'), form.optional('TokenCode')]
  if (code !== undefined && !/^\d{6}$/.test(code)) throw validation("Value at 'tokenCode' failed to satisfy constraint")
  if (serial !== undefined && (code === undefined || user.mfa.get(serial) !== code)) {
    throw denied('MultiFactorAuthentication failed with invalid MFA one time pass code.')
  }
  const request = { DurationSeconds: String(seconds), ...(serial !== undefined && { SerialNumber: serial }) }
  const arn = account.arn('user', user.path, user.name)
  const expiresAtMs = nowMs + seconds * 1000
  const session = account.addSession({ arn, kind: 'session', user: user.name, expiresAtMs, request })
  return { Credentials: credentials(session) }
}

export const STS_ACTIONS: Readonly<Record<string, Action>> = {
  GetCallerIdentity: (call) => ({
    Arn: callerArn(call),
    UserId: call.caller.user?.id ?? 'AROAEXAMPLE',
    Account: call.account.id,
  }),
  AssumeRole: assumeRole,
  AssumeRoleWithWebIdentity: assumeRoleWithWebIdentity,
  GetFederationToken: getFederationToken,
  GetSessionToken: getSessionToken,
}
