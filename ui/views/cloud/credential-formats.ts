/** AWS credentials as text that can be pasted. */

export interface Credentials {
  readonly accessKeyId: string
  readonly secretAccessKey: string
  /** Empty for an IAM user. */
  readonly sessionToken: string
  /** RFC 3339 in seconds, UTC; empty if unknown. */
  readonly expiration: string
}

/** Characters of keys and tokens. None has a meaning in a shell or in a configuration file. */
const PLAIN = /^[\w+/=.,@:-]+$/
const PROFILE = /^[\w.@:/+-]+$/

interface CredentialsAnswer {
  readonly lease_duration: number
  readonly data: Readonly<Record<string, unknown>>
}

/** `nowMs`: the time before the request, so that the expiration is never too late. Throws an Error for a response without credentials. */
export function credentialsOf({ data, lease_duration: seconds }: CredentialsAnswer, nowMs: number): Credentials {
  const text = (name: string) => (typeof data[name] === 'string' ? data[name] : '')
  const sessionToken = text('session_token') || text('security_token')
  const [accessKeyId, secretAccessKey] = [text('access_key'), text('secret_key')]
  const parts = [accessKeyId, secretAccessKey, ...(sessionToken === '' ? [] : [sessionToken])]
  if (!parts.every((part) => PLAIN.test(part))) throw new Error('The response contains no AWS credentials.')
  const expiration = seconds > 0 ? isoSeconds(nowMs + seconds * 1000) : withoutFraction(text('expiration'))
  return { accessKeyId, secretAccessKey, sessionToken, expiration }
}

function isoSeconds(atMs: number): string {
  return withoutFraction(new Date(atMs).toISOString())
}

function withoutFraction(iso: string): string {
  return iso.replace(/\.\d+Z$/, 'Z')
}

export type CredentialFormat = 'shell' | 'profile' | 'json'

export const CREDENTIAL_FORMATS: Readonly<Record<CredentialFormat, string>> = {
  shell: 'Shell',
  profile: 'AWS credentials file',
  json: 'JSON',
}

/** `role`: the name of the profile, if it may be one. */
export function formatCredentials(format: CredentialFormat, credentials: Credentials, role: string): string {
  if (format === 'shell') return shellText(credentials)
  return format === 'json' ? jsonText(credentials) : profileText(credentials, PROFILE.test(role) ? role : 'default')
}

/** Lines for a POSIX shell. */
function shellText({ accessKeyId, expiration, secretAccessKey, sessionToken }: Credentials): string {
  const pairs = [
    ['AWS_ACCESS_KEY_ID', accessKeyId],
    ['AWS_SECRET_ACCESS_KEY', secretAccessKey],
    ['AWS_SESSION_TOKEN', sessionToken],
    ['AWS_CREDENTIAL_EXPIRATION', sessionToken === '' ? '' : expiration],
  ]
  // A shell may still have the session token of other credentials.
  const reset = sessionToken === '' ? 'unset AWS_SESSION_TOKEN\n' : ''
  return reset + lines(pairs, (name, value) => `export ${name}=${value}`)
}

function profileText({ accessKeyId, secretAccessKey, sessionToken }: Credentials, profile: string): string {
  const pairs = [
    ['aws_access_key_id', accessKeyId],
    ['aws_secret_access_key', secretAccessKey],
    ['aws_session_token', sessionToken],
  ]
  return `[${profile}]\n${lines(pairs, (name, value) => `${name} = ${value}`)}`
}

/** As a `credential_process` prints it. */
function jsonText({ accessKeyId, expiration, secretAccessKey, sessionToken }: Credentials): string {
  const document = {
    Version: 1,
    AccessKeyId: accessKeyId,
    SecretAccessKey: secretAccessKey,
    ...(sessionToken !== '' && { SessionToken: sessionToken }),
    ...(expiration !== '' && { Expiration: expiration }),
  }
  return `${JSON.stringify(document, undefined, 2)}\n`
}

function lines(pairs: readonly (readonly string[])[], lineOf: (name: string, value: string) => string): string {
  return pairs.map(([name = '', value = '']) => (value === '' ? '' : `${lineOf(name, value)}\n`)).join('')
}
