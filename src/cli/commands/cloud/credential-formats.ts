/** AWS credentials in the formats of the AWS SDKs and CLI. */
import type { JsonFields } from '../../output/json.ts'
import { CommandError } from '../../framework/define-command.ts'
import { isoSeconds } from '../../output/table.ts'

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

/** Throws CommandError for a response without credentials. */
export function credentialsOf(answer: JsonFields, path: string, nowMs: number): Credentials {
  const data = answer.under('data')
  const [accessKeyId, secretAccessKey] = [data.text('access_key'), data.text('secret_key')]
  const sessionToken = data.text('session_token') || data.text('security_token')
  const seconds = answer.number('lease_duration')
  const parts = [accessKeyId, secretAccessKey, ...(sessionToken === '' ? [] : [sessionToken])]
  if (!parts.every((part) => PLAIN.test(part))) {
    throw new CommandError(
      `the response of ${path} contains no AWS credentials, check that it is a role of a cloud engine`,
    )
  }
  const expiration = seconds > 0 ? isoSeconds(nowMs + seconds * 1000) : ''
  return { accessKeyId, secretAccessKey, sessionToken, expiration }
}

/** The output of a `credential_process` program. */
export function processJson({ accessKeyId, expiration, secretAccessKey, sessionToken }: Credentials): string {
  const document = {
    Version: 1,
    AccessKeyId: accessKeyId,
    SecretAccessKey: secretAccessKey,
    ...(sessionToken !== '' && { SessionToken: sessionToken }),
    ...(expiration !== '' && { Expiration: expiration }),
  }
  return `${JSON.stringify(document)}\n`
}

/** Environment variables, one per line. */
export function envLines({ accessKeyId, expiration, secretAccessKey, sessionToken }: Credentials): string {
  const pairs = [
    ['AWS_ACCESS_KEY_ID', accessKeyId],
    ['AWS_SECRET_ACCESS_KEY', secretAccessKey],
    ['AWS_SESSION_TOKEN', sessionToken],
    ['AWS_CREDENTIAL_EXPIRATION', sessionToken === '' ? '' : expiration],
  ]
  return lines(pairs, '=')
}

/** A profile of a shared credentials file. */
export function profileText({ accessKeyId, secretAccessKey, sessionToken }: Credentials, profile: string): string {
  const pairs = [
    ['aws_access_key_id', accessKeyId],
    ['aws_secret_access_key', secretAccessKey],
    ['aws_session_token', sessionToken],
  ]
  return `[${profile}]\n${lines(pairs, ' = ')}`
}

function lines(pairs: readonly (readonly string[])[], separator: string): string {
  return pairs
    .filter(([, value]) => value !== '')
    .map(([name, value]) => `${name}${separator}${value}\n`)
    .join('')
}
