/** Credentials of the cloud engine as the variables that programs of AWS read. */
import { credentialsOf, type Credentials } from '../cloud/credential-formats.ts'
import { fieldsOf } from '../../output/answer.ts'
import type { NamedData } from './secret-values.ts'

/**
 * The environment of the command. A session token that it has already is removed: it belongs to other keys, and AWS refuses the
 * mixture. Throws CommandError for a secret that has no credentials of AWS.
 */
export function awsEnvironment({ data, path }: NamedData, environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const credentials = credentialsOf(fieldsOf({ data }), path, 0)
  const {
    AWS_SESSION_TOKEN: _token,
    AWS_SECURITY_TOKEN: _legacy,
    AWS_CREDENTIAL_EXPIRATION: _end,
    ...rest
  } = environment
  return { ...rest, ...awsVariables(credentials) }
}

function awsVariables({ accessKeyId, secretAccessKey, sessionToken }: Credentials): Record<string, string> {
  return {
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
    ...(sessionToken === '' ? {} : { AWS_SESSION_TOKEN: sessionToken }),
  }
}
