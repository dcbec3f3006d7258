/**
 * Root credentials by workload identity federation: a token signed by this server is exchanged for a session of a role
 * whose trust policy names the server as issuer. No access key is stored. The request is not signed; the token authenticates it.
 */
import { messageOf } from '../../../platform/errors.ts'
import type { MountFacts } from '../../framework/engine.ts'
import { stsClient } from './aws.ts'
import { AwsFailure } from './aws-failure.ts'
import { attemptsOf, type StaticCredentials, stsTargets } from './aws-target.ts'
import type { RootConfig } from './root-record.ts'

/** The SDK requests new credentials if less time is left. */
const LEFT_MIN_MS = 300_000
const EXCHANGE_MS = 30_000

type IdentityTokens = MountFacts['identityToken']

interface FederatedSession extends StaticCredentials {
  readonly expiration: Date
}

export class Federation {
  readonly #config: RootConfig
  readonly #tokens: IdentityTokens
  #session: FederatedSession | undefined
  #exchange: Promise<FederatedSession> | undefined

  constructor(config: RootConfig, tokens: IdentityTokens) {
    this.#config = config
    this.#tokens = tokens
  }

  /** One session for all clients of a mount, with a new token for each session. Rejects with an AwsFailure. */
  readonly credentials = async (): Promise<FederatedSession> => {
    const session = this.#session
    if (session && session.expiration.getTime() - Date.now() > LEFT_MIN_MS) return session
    this.#exchange ??= this.#exchanged().finally(() => (this.#exchange = undefined))
    this.#session = await this.#exchange
    return this.#session
  }

  async #exchanged(): Promise<FederatedSession> {
    const { identityTokenAudience: audience, identityTokenTtlSeconds: ttlSeconds } = this.#config
    const { issuer, token } = await this.#tokens({ audience, ttlSeconds }).catch((error: unknown) => {
      throw new AwsFailure('', `failed to generate plugin identity token: ${messageOf(error)}`, 0, false)
    })
    let last: unknown
    for (const target of stsTargets(this.#config)) {
      const client = stsClient({ target, attempts: attemptsOf(this.#config) })
      try {
        const input = { RoleArn: this.#config.roleArn, RoleSessionName: sessionName(), WebIdentityToken: token }
        const signal = AbortSignal.timeout(EXCHANGE_MS)
        const { Credentials: made } = await client.call(
          (sts, options) => sts.assumeRoleWithWebIdentity(input, options),
          { signal },
        )
        return {
          accessKeyId: made?.AccessKeyId ?? '',
          secretAccessKey: made?.SecretAccessKey ?? '',
          sessionToken: made?.SessionToken ?? '',
          expiration: made?.Expiration ?? new Date(),
        }
      } catch (error) {
        last = error
        // Other endpoints would refuse it too.
        if (!(error instanceof AwsFailure) || error.code !== '') break
      } finally {
        client.close()
      }
    }
    throw withHint(last, this.#config.roleArn, issuer)
  }
}

/** The same name as in Vault, by which operators find sessions in CloudTrail. */
function sessionName(): string {
  return `vault-aws-secrets-${Date.now()}000000`
}

const HINTS: Readonly<Record<string, (issuer: string) => string>> = {
  AccessDenied: (issuer) => `the trust policy of the role must allow sts:AssumeRoleWithWebIdentity to ${issuer}`,
  ExpiredTokenException: () => "this server's clock differs from that of AWS, or identity_token_ttl is too short",
  IDPCommunicationError: (issuer) => `AWS must be able to read ${issuer}/.well-known/openid-configuration`,
  InvalidIdentityToken: (issuer) =>
    `AWS needs an OIDC provider for ${issuer} with this audience, and must be able to read its keys`,
}

function withHint(error: unknown, roleArn: string, issuer: string): unknown {
  if (!(error instanceof AwsFailure)) return error
  const { code, isAmbiguous, message, status } = error
  const text = `federation as ${roleArn}: ${message}`
  return new AwsFailure(code, text, status, isAmbiguous, HINTS[code]?.(issuer))
}
