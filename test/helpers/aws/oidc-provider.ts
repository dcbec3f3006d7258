/** OIDC providers of an account: AssumeRoleWithWebIdentity verifies tokens with the keys that the issuers publish. */
import { AwsError } from './wire.ts'

/** A registered issuer, and a function that reads its documents. */
export interface OidcProvider {
  readonly issuer: string
  readonly audiences: readonly string[]
  /** The JSON at a URL; rejects if there is none. */
  readonly read: (url: string) => Promise<unknown>
}

export interface WebIdentity {
  readonly issuer: string
  readonly audience: string
  readonly subject: string
}

/** Loaded with the first token. */
async function jose() {
  return import('jose')
}

/** The identity in a token with verified signature, time, issuer and audience. Rejects with the AwsError of STS. */
export async function verifiedIdentity(
  token: string,
  providers: ReadonlyMap<string, OidcProvider>,
  nowMs: number,
): Promise<WebIdentity> {
  const { createLocalJWKSet, decodeJwt, errors, jwtVerify } = await jose()
  const provider = providers.get(issuerOf(token, decodeJwt))
  if (!provider) throw invalid('No OpenIDConnect provider found in your account for this issuer')
  const { audiences, issuer } = provider
  const keys = await jwksOf(provider)
  try {
    const { payload } = await jwtVerify(token, createLocalJWKSet(keys), {
      issuer,
      audience: [...audiences],
      currentDate: new Date(nowMs),
      algorithms: ['RS256', 'ES256'],
      requiredClaims: ['sub', 'iat', 'exp'],
    })
    return { issuer, audience: String([payload.aud].flat()[0]), subject: payload.sub ?? '' }
  } catch (error) {
    if (error instanceof errors.JWTExpired) throw new AwsError('ExpiredTokenException', 'Token expired')
    const isAudience = error instanceof errors.JWTClaimValidationFailed && error.claim === 'aud'
    if (isAudience) throw invalid('Incorrect token audience')
    if (error instanceof errors.JWKSNoMatchingKey) {
      throw invalid("Couldn't retrieve verification key from your identity provider")
    }
    throw invalid('Token signature invalid')
  }
}

function issuerOf(token: string, decode: (token: string) => { readonly iss?: string }): string {
  try {
    return decode(token).iss ?? ''
  } catch {
    throw invalid('The ID Token provided is not a valid JWT.')
  }
}

async function jwksOf({ issuer, read }: OidcProvider): Promise<{ keys: object[] }> {
  try {
    const about = (await read(`${issuer}/.well-known/openid-configuration`)) as { issuer: string; jwks_uri: string }
    if (about.issuer !== issuer) throw new Error('it is the document of another issuer')
    return (await read(about.jwks_uri)) as { keys: object[] }
  } catch {
    throw new AwsError('IDPCommunicationError', 'Error communicating with the identity provider', 400)
  }
}

function invalid(message: string): AwsError {
  return new AwsError('InvalidIdentityToken', message)
}
