/**
 * The issuer of identity tokens: JSON Web Tokens that say which mount of this cluster calls, for services outside that trust
 * the server's keys (workload identity federation). It needs no secret that both sides share: they read its public keys at
 * `identity/oidc/plugins/.well-known/`.
 *
 * Tokens are never stored. They cannot be taken back, so they are good for a day at most; who must end them at once rotates
 * the key with `verification_ttl=0`.
 */
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { type IdentityToken, type IdentityTokenRequest, Rejection } from '../../engines/framework/engine.ts'
import type { MountRecord } from '../mounts/mount-record.ts'
import { StoredSetting } from '../settings/stored-setting.ts'
import { ALGORITHM, OidcKeys, VERIFICATION_SECONDS } from './oidc-keys.ts'

const DEFAULT_TTL_SECONDS = 3600
/** Of namespaces there is one. */
const NAMESPACE = { namespace_id: 'root', namespace_path: '' }

export interface OidcIssuerOptions {
  /** All of the barrier. */
  readonly storage: Storage
  readonly now: () => number
  /** The machine's clock: who checks a token has one, too. */
  readonly wall: () => number
  /** URL of the server, empty while it is not known. */
  readonly apiAddress: () => string
}

export class OidcIssuer {
  readonly keys: OidcKeys
  /** What operators say of the issuer; empty: the server's own address. */
  readonly config: StoredSetting<{ readonly issuer: string }>
  readonly #options: OidcIssuerOptions

  constructor(options: OidcIssuerOptions) {
    this.#options = options
    this.keys = new OidcKeys(options.storage, options.now)
    this.config = new StoredSetting(options.storage, 'sys/oidc/config', v.object({ issuer: v.string() }), {
      issuer: '',
    })
  }

  /** The value of `iss`, below which the documents are served. Throws a Rejection (400) where there is no address. */
  get url(): string {
    const base = this.config.value.issuer === '' ? this.#options.apiAddress() : this.config.value.issuer
    if (base !== '') return `${base.replace(/\/$/, '')}/v1/identity/oidc/plugins`
    throw new Rejection(400, "identity tokens need an issuer: write the server's public URL to identity/oidc/config")
  }

  /** A fresh token for a mount. Throws once the core is sealed; a Rejection (400) for a term that is too long. */
  async token(mount: MountRecord, { audience, ttlSeconds }: IdentityTokenRequest): Promise<IdentityToken> {
    const seconds = ttlSeconds === 0 ? DEFAULT_TTL_SECONDS : ttlSeconds
    if (seconds > VERIFICATION_SECONDS) {
      const hours = VERIFICATION_SECONDS / 3600
      throw new Rejection(400, `an identity token is good for at most ${hours}h, as long as its key can be read`)
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

/** It has the accessor, so a role can be bound to one mount, also where another one takes the place of its path. */
function subjectOf(mount: MountRecord): string {
  return `plugin-identity:${NAMESPACE.namespace_id}:${classOf(mount)}:${mount.accessor}`
}

function claimsOf(mount: MountRecord): Readonly<Record<string, unknown>> {
  const { accessor, local, path, type } = mount
  return { ...NAMESPACE, class: classOf(mount), plugin: type, path, accessor, local }
}
