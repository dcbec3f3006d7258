/** Credentials of AWS in the forms in which programs of AWS take them. */
import type { Answer } from '../../output/answer.ts'
import { CommandError } from '../../framework/command-shape.ts'

export interface Credentials {
  readonly accessKeyId: string
  readonly secretAccessKey: string
  /** Empty for a user of IAM. */
  readonly sessionToken: string
  /** When they end, as AWS writes times; empty where that is not told. */
  readonly expiration: string
}

/** Characters that AWS takes for keys and tokens; none of them means anything to a shell or to a file of settings. */
const PLAIN = /^[\w+/=.,@:-]+$/

/** What the core answered. Throws CommandError for what are no credentials. */
export function credentialsOf(answer: Answer, path: string, nowMs: number): Credentials {
  const data = answer.under('data')
  const [accessKeyId, secretAccessKey] = [data.text('access_key'), data.text('secret_key')]
  const sessionToken = data.text('session_token') || data.text('security_token')
  const seconds = answer.number('lease_duration')
  const parts = [accessKeyId, secretAccessKey, ...(sessionToken === '' ? [] : [sessionToken])]
  if (!parts.every((part) => PLAIN.test(part))) {
    throw new CommandError(`the answer of ${path} has no credentials of AWS, is it a role of an engine of type cloud?`)
  }
  const expiration = seconds > 0 ? new Date(nowMs + seconds * 1000).toISOString().replace(/\.\d+Z$/, 'Z') : ''
  return { accessKeyId, secretAccessKey, sessionToken, expiration }
}

/** What a program that `credential_process` names writes. */
export function processJson({ accessKeyId, expiration, secretAccessKey, sessionToken }: Credentials): string {
  const whole = {
    Version: 1,
    AccessKeyId: accessKeyId,
    SecretAccessKey: secretAccessKey,
    ...(sessionToken !== '' && { SessionToken: sessionToken }),
    ...(expiration !== '' && { Expiration: expiration }),
  }
  return `${JSON.stringify(whole)}\n`
}

/** Variables, one a line. */
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

function lines(pairs: readonly (readonly string[])[], sign: string): string {
  return pairs
    .filter(([, value]) => value !== '')
    .map(([name, value]) => `${name}${sign}${value}\n`)
    .join('')
}
