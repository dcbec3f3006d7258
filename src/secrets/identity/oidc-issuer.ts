/**
 * The issuer of identity tokens: JSON Web Tokens that identify a mount of this cluster to external services (workload identity
 * federation). There is no shared secret: services read the public keys at `identity/oidc/plugins/.well-known/`.
 *
 * Tokens are not stored and cannot be revoked, so they are valid for a day at most. A rotation of the key with `verification_ttl=0`
 * invalidates all of them.
 */
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { type IdentityToken, type IdentityTokenRequest, Rejection } from '../../engines/framework/engine.ts'
import type { MountRecord } from '../mounts/mount-record.ts'
import { StoredSetting } from '../settings/stored-setting.ts'
import { NAMESPACE_ID } from './identity-services.ts'
import { ALGORITHM, OidcKeys, VERIFICATION_SECONDS } from './oidc-keys.ts'

const DEFAULT_TTL_SECONDS = 3600
const NAMESPACE = { namespace_id: NAMESPACE_ID, namespace_path: '' }

export interface OidcIssuerOptions {
  /** All of the barrier. */
  readonly storage: Storage
  readonly now: () => number
  /** The machine's clock, because services verify tokens by theirs. */
  readonly wall: () => number
  /** URL of the server; empty if unknown. */
  readonly apiAddress: () => string
}

export class OidcIssuer {
  readonly keys: OidcKeys
  /** `issuer` is empty for the server's own address. */
  readonly config: StoredSetting<{ readonly issuer: string }>
  readonly #options: OidcIssuerOptions

  constructor(options: OidcIssuerOptions) {
    this.#options = options
    this.keys = new OidcKeys(options.storage, options.now)
    this.config = new StoredSetting(options.storage, 'sys/oidc/config', v.object({ issuer: v.string() }), {
      issuer: '',
    })
  }

  /** The claim `iss`, and the URL of the documents. Throws a Rejection (400) if the address is unknown. */
  get url(): string {
    const base = this.config.value.issuer === '' ? this.#options.apiAddress() : this.config.value.issuer
    if (base !== '') return `${base.replace(/\/$/, '')}/v1/identity/oidc/plugins`
    throw new Rejection(400, "identity tokens need an issuer: write the server's public URL to identity/oidc/config")
  }

  /** Issues a token for a mount. Throws once the core is sealed, and a Rejection (400) for a TTL that is too long. */
  async token(mount: MountRecord, { audience, ttlSeconds }: IdentityTokenRequest): Promise<IdentityToken> {
    const seconds = ttlSeconds === 0 ? DEFAULT_TTL_SECONDS : ttlSeconds
    if (seconds > VERIFICATION_SECONDS) {
      const hours = VERIFICATION_SECONDS / 3600
      throw new Rejection(
        400,
        `the TTL of an identity token can be at most ${hours}h, the verification period of its key`,
      )
    }
    const issuer = this.url
    const { id, key } = await this.keys.signing()
    const nowSeconds = Math.floor(this.#options.wall() / 1000)
    const { SignJWT } = await import('jose')
    const token = await new SignJWT({ 'vaultproject.io': claimsOf(mount) })
      .setProtectedHeader({ alg: ALGORITHM, kid: id, typ: 'JWT' })
      .setIssuer(issuer)
      .setSubject(subjectOf(mount))
      .setAudience(audience)
      .setIssuedAt(nowSeconds)
      .setNotBefore(nowSeconds)
      .setExpirationTime(nowSeconds + seconds)
      .sign(key)
    return { token, issuer }
  }

  /** The discovery document (OpenID Connect Discovery 1.0). */
  discovery(): Readonly<Record<string, unknown>> {
    const { url } = this
    return {
      issuer: url,
      jwks_uri: `${url}/.well-known/keys`,
      response_types_supported: ['id_token'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: [ALGORITHM],
    }
  }
}

function classOf({ path }: MountRecord): string {
  return path.startsWith('auth/') ? 'auth' : 'secret'
}

/** Contains the accessor, so a role can be bound to one mount, and not to another mount at the same path. */
function subjectOf(mount: MountRecord): string {
  return `plugin-identity:${NAMESPACE.namespace_id}:${classOf(mount)}:${mount.accessor}`
}

function claimsOf(mount: MountRecord): Readonly<Record<string, unknown>> {
  const { accessor, local, path, type } = mount
  return { ...NAMESPACE, class: classOf(mount), plugin: type, path, accessor, local }
}
