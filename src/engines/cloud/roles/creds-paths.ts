/** `creds/…` and `sts/…`: credentials by a role. They differ for roles of the old parameters only. */
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { boolean, duration, inPath, type EngineInput, text } from '../../framework/fields.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { goQuote } from '../templates/go-quote.ts'
import { checkName } from '../aws/names.ts'
import { type CredentialType, type Role, roles } from '../mount/role-record.ts'
import { assumedRole, federationToken, sessionToken } from '../sessions/sessions.ts'
import { userCredentials } from '../users/users.ts'

const FIELDS = {
  name: inPath('Name of the role'),
  role_arn: text('ARN of the role to assume, where there are several'),
  role_session_name: text('Name of the session; at most 64 characters are taken'),
  ttl: duration('How long a session lasts'),
  mfa_code: text('Code of the MFA device, where the role has one'),
  wait: boolean('Whether to answer only when AWS accepts the new access key of a user', { fallback: true }),
}

type CredsInput = EngineInput<typeof FIELDS>
type Place = 'creds' | 'sts'

export const credsPaths: readonly Path[] = (['creds', 'sts'] as const).map((place) => {
  const give = (input: CredsInput, call: EngineCall) => credentials(place, input, call)
  return path({
    pattern: `${place}/:name`,
    summary: 'Credentials by a role',
    fields: FIELDS,
    read: give,
    update: give,
  })
})

async function credentials(place: Place, input: CredsInput, call: EngineCall): Promise<Reply> {
  checkName(input.name)
  const role = roles.read((each) => call.storage.get(each), call.mount, input.name)
  if (!role) throw new Rejection(400, `Role ${goQuote(input.name)} not found`)
  const { counts } = CloudMount.of(call)
  try {
    const reply = await given(place, role, input, call)
    counts.add('credentials', role.name)
    return reply
  } catch (error) {
    counts.failed(role.name, error)
    throw error
  }
}

async function given(place: Place, role: Role, input: CredsInput, call: EngineCall): Promise<Reply> {
  const type = typeOf(place, role)
  if (type === 'iam_user') return userCredentials(role, call, input.wait)
  const make = SESSIONS[type]
  // A code is good once.
  if (role.cacheSeconds === 0 || input.mfa_code !== undefined) return make(role, input, call)
  const { aws, counts, sessions } = CloudMount.of(call)
  const { cacheSeconds } = role
  const { maxLeaseSeconds } = call.mount
  const key = [type, role, aws.config, maxLeaseSeconds, input.role_arn, input.role_session_name, input.ttl]
  const { entityId, tokenHash } = call.caller
  const by = { role: role.name, maker: entityId === '' ? tokenHash : entityId, key, cacheSeconds, now: call.now }
  const { isShared, reply } = await sessions.get(by, (signal) => make(role, input, { ...call, signal }))
  if (isShared) counts.add('shared_sessions', role.name)
  return reply
}

const SESSIONS = { assumed_role: assumedRole, federation_token: federationToken, session_token: sessionToken }

/** Which kind is asked for. Throws a Rejection (400) where the role does not give it here. */
function typeOf(place: Place, { isLegacy, types }: Role): CredentialType {
  const [first, second] = types
  if (first === undefined) throw new Rejection(400, 'unknown credential_type: ""')
  const type = second === undefined || place === 'creds' ? first : second
  if (!isLegacy) return type
  if (type === 'iam_user' && place === 'sts') {
    throw new Rejection(
      400,
      'attempted to retrieve iam_user credentials through the sts path; this is not allowed for legacy roles',
    )
  }
  if (type !== 'iam_user' && place === 'creds') {
    throw new Rejection(
      400,
      `attempted to retrieve ${type} credentials through the creds path; this is not allowed for legacy roles`,
    )
  }
  return type
}
