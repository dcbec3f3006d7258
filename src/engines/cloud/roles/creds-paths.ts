/** `creds/…` and `sts/…`: credentials of a role. The two differ only for roles with the legacy parameters. */
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { boolean, duration, inPath, type EngineInput, text } from '../../framework/fields.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { goQuote } from '../templates/template-functions.ts'
import { checkName } from '../aws/entries.ts'
import { type CredentialType, type CloudRole, roles } from '../mount/role-record.ts'
import { assumedRole, federationToken, sessionToken } from '../sessions/sessions.ts'
import { userCredentials } from '../users/users.ts'

const FIELDS = {
  name: inPath('Name of the role'),
  role_arn: text('ARN of the role to assume; required if there are several'),
  role_session_name: text('Session name, truncated to 64 characters'),
  ttl: duration('Duration of the session'),
  mfa_code: text('Code of the MFA device of the role'),
  wait: boolean('Wait until AWS accepts the new access key', { fallback: true }),
}

type CredsInput = EngineInput<typeof FIELDS>
type CredentialPath = 'creds' | 'sts'

export const credsPaths: readonly Path[] = (['creds', 'sts'] as const).map((credentialPath) => {
  const issue = (input: CredsInput, call: EngineCall) => credentials(credentialPath, input, call)
  return path({
    pattern: `${credentialPath}/:name`,
    summary: 'Issue credentials of a role',
    fields: FIELDS,
    read: issue,
    update: issue,
  })
})

async function credentials(credentialPath: CredentialPath, input: CredsInput, call: EngineCall): Promise<Reply> {
  checkName(input.name)
  const role = roles.read((each) => call.storage.get(each), call.mount, input.name)
  if (!role) throw new Rejection(400, `Role ${goQuote(input.name)} not found`)
  const { metrics } = CloudMount.of(call)
  try {
    const reply = await issueCredentials(credentialPath, role, input, call)
    metrics.add('credentials', role.name)
    return reply
  } catch (error) {
    metrics.countFailure(role.name, error)
    throw error
  }
}

async function issueCredentials(
  credentialPath: CredentialPath,
  role: CloudRole,
  input: CredsInput,
  call: EngineCall,
): Promise<Reply> {
  const type = typeOf(credentialPath, role)
  if (type === 'iam_user') return userCredentials(role, call, input.wait)
  const create = SESSIONS[type]
  // A code is valid once.
  if (role.cacheSeconds === 0 || input.mfa_code !== undefined) return create(role, input, call)
  const { aws, metrics, sessions } = CloudMount.of(call)
  const { cacheSeconds } = role
  const { maxLeaseSeconds } = call.mount
  const key = [type, role, aws.config, maxLeaseSeconds, input.role_arn, input.role_session_name, input.ttl]
  const { entityId, tokenHash } = call.caller
  const caller = entityId === '' ? tokenHash : entityId
  const request = { role: role.name, caller, key, cacheSeconds, now: call.now }
  const { isShared, reply } = await sessions.get(request, (signal) => create(role, input, { ...call, signal }))
  if (isShared) metrics.add('shared_sessions', role.name)
  return reply
}

const SESSIONS = { assumed_role: assumedRole, federation_token: federationToken, session_token: sessionToken }

/** The credential type for the path. Throws a Rejection (400) if the role does not support it. */
function typeOf(credentialPath: CredentialPath, { isLegacy, types }: CloudRole): CredentialType {
  const [first, second] = types
  if (first === undefined) throw new Rejection(400, 'unknown credential_type: ""')
  const type = second === undefined || credentialPath === 'creds' ? first : second
  if (!isLegacy) return type
  if (type === 'iam_user' && credentialPath === 'sts') {
    throw new Rejection(
      400,
      'attempted to retrieve iam_user credentials through the sts path; this is not allowed for legacy roles',
    )
  }
  if (type !== 'iam_user' && credentialPath === 'creds') {
    throw new Rejection(
      400,
      `attempted to retrieve ${type} credentials through the creds path; this is not allowed for legacy roles`,
    )
  }
  return type
}
