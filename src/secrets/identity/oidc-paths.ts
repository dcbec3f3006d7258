/** `identity/oidc`: the issuer and the keys of identity tokens. The discovery documents require no token. */
import { type Path, path, Rejection } from '../../engines/framework/engine.ts'
import { duration, text } from '../../engines/framework/fields.ts'
import type { OidcIssuer } from './oidc-issuer.ts'
import { ALGORITHM, ROTATION_SECONDS, VERIFICATION_SECONDS } from './oidc-keys.ts'

export interface OidcServices {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: { readonly oidc: OidcIssuer }
}

const ISSUER_LENGTH_MAX = 512
const ISSUER_WARNING =
  'If "issuer" is set explicitly, all tokens must be validated against that address, including those issued by secondary clusters. Setting issuer to "" will restore the default behavior of using the cluster\'s api_addr as the issuer.'
/** The next key is published a day before it signs, so a client may cache the documents for an hour. */
const CACHED = { 'cache-control': 'max-age=3600' }
const UNCACHED = { 'cache-control': 'no-store' }

export function oidcPaths(core: OidcServices): Path[] {
  const issuer = () => core.open.oidc
  return [
    path({
      pattern: 'oidc/config',
      summary: 'Read or set the issuer of identity tokens',
      fields: { issuer: text('Public URL of the server without a path. Empty: the address of the server') },
      read: () => ({ data: issuer().config.value }),
      async update({ issuer: given = '' }) {
        checkIssuer(given)
        await issuer().config.change(() => ({ issuer: given }))
        return given === '' ? undefined : { warnings: [ISSUER_WARNING] }
      },
    }),
    path({
      pattern: 'oidc/key/default',
      summary: 'Read the settings of the signing key',
      fields: {},
      read: () => ({
        data: {
          algorithm: ALGORITHM,
          allowed_client_ids: ['*'],
          rotation_period: ROTATION_SECONDS,
          verification_ttl: VERIFICATION_SECONDS,
        },
      }),
    }),
    path({
      pattern: 'oidc/key/default/rotate',
      summary: 'Rotate the signing key',
      fields: { verification_ttl: duration('How long tokens of the previous key can be verified') },
      async update({ verification_ttl: ttl = VERIFICATION_SECONDS }) {
        if (ttl > VERIFICATION_SECONDS)
          throw new Rejection(400, `verification_ttl can be at most ${VERIFICATION_SECONDS}s`)
        await issuer().keys.rotate(ttl)
        return undefined
      },
    }),
    path({
      pattern: 'oidc/plugins/.well-known/openid-configuration',
      summary: 'Read the OpenID Connect discovery document',
      unauthenticated: true,
      fields: {},
      read: () => ({ bare: issuer().discovery(), headers: CACHED }),
    }),
    path({
      pattern: 'oidc/plugins/.well-known/keys',
      summary: 'Read the public keys as a JWKS',
      unauthenticated: true,
      fields: {},
      read() {
        const keys = issuer().keys.publicKeys()
        return { bare: { keys }, headers: keys.length > 0 ? CACHED : UNCACHED }
      },
    }),
  ]
}

/** Throws a Rejection (400) unless the text is an origin: scheme, host and port. */
function checkIssuer(given: string): void {
  if (given === '') return
  const url = given.length > ISSUER_LENGTH_MAX ? null : URL.parse(given)
  const isServer = url !== null && /^https?:$/.test(url.protocol) && url.hostname !== '' && url.origin === given
  if (isServer) return
  throw new Rejection(
    400,
    'invalid issuer, which must include only a scheme, host, and optional port (e.g. https://example.com:8200)',
  )
}
