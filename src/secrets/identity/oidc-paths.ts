/** `identity/oidc`: who issues identity tokens, and by which keys they are checked. Both documents are for everybody. */
import { type Path, path, Rejection } from '../../engines/framework/engine.ts'
import { duration, text } from '../../engines/framework/fields.ts'
import type { OidcIssuer } from './oidc-issuer.ts'
import { ALGORITHM, ROTATION_SECONDS, VERIFICATION_SECONDS } from './oidc-keys.ts'

export interface OidcParts {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: { readonly oidc: OidcIssuer }
}

const ISSUER_LENGTH_MAX = 512
const ISSUER_WARNING =
  'If "issuer" is set explicitly, all tokens must be validated against that address, including those issued by secondary clusters. Setting issuer to "" will restore the default behavior of using the cluster\'s api_addr as the issuer.'
/** The next key is there a whole day before it signs: who keeps the documents for an hour knows it by then. */
const CACHED = { 'cache-control': 'max-age=3600' }
const UNCACHED = { 'cache-control': 'no-store' }

export function oidcPaths(core: OidcParts): Path[] {
  const issuer = () => core.open.oidc
  return [
    path({
      pattern: 'oidc/config',
      summary: 'Who issues identity tokens',
      fields: { issuer: text('Public URL of the server, without a path; empty for its own address') },
      read: () => ({ data: issuer().config.value }),
      async update({ issuer: given = '' }) {
        checkIssuer(given)
        await issuer().config.change(() => ({ issuer: given }))
        return given === '' ? undefined : { warnings: [ISSUER_WARNING] }
      },
    }),
    path({
      pattern: 'oidc/key/default',
      summary: 'How identity tokens are signed',
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
      summary: 'Sign identity tokens with the next key from now on',
      fields: { verification_ttl: duration('How long tokens of the key before can still be checked') },
      async update({ verification_ttl: ttl = VERIFICATION_SECONDS }) {
        if (ttl > VERIFICATION_SECONDS) throw new Rejection(400, `verification_ttl is at most ${VERIFICATION_SECONDS}s`)
        await issuer().keys.rotate(ttl)
        return undefined
      },
    }),
    path({
      pattern: 'oidc/plugins/.well-known/openid-configuration',
      summary: 'Discovery document of the issuer of identity tokens',
      unauthenticated: true,
      fields: {},
      read: () => ({ bare: issuer().discovery(), headers: CACHED }),
    }),
    path({
      pattern: 'oidc/plugins/.well-known/keys',
      summary: 'Public keys of the issuer of identity tokens, as a JWKS',
      unauthenticated: true,
      fields: {},
      read() {
        const keys = issuer().keys.shown()
        return { bare: { keys }, headers: keys.length > 0 ? CACHED : UNCACHED }
      },
    }),
  ]
}

/** Throws a Rejection (400) for what is no address of a server. */
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
