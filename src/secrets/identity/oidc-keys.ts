/**
 * The keys that sign identity tokens. From the first token on there are two: the signing key, and the next one, which is published a
 * whole rotation period before it signs. A retired key is published until the last token that it signed has expired.
 */
import { createPrivateKey, generateKeyPair, type KeyObject, randomUUID } from 'node:crypto'
import { promisify } from 'node:util'
import * as v from 'valibot'
import { Mutex } from '../../platform/mutex.ts'
import type { Storage } from '../../storage/barrier/storage.ts'
import { StoredSetting } from '../settings/stored-setting.ts'

export const ALGORITHM = 'RS256'
const MODULUS_BITS = 2048
/** How long a key signs. */
export const ROTATION_SECONDS = 86_400
/** How long a retired key is published, and the maximum TTL of a token. */
export const VERIFICATION_SECONDS = 86_400
/** Manual rotations retire keys early; the oldest ones are dropped. */
const RETIRED_MAX = 20
const PATH = 'sys/oidc/keys'

const publicSchema = v.object({ id: v.string(), n: v.string(), e: v.string() })
const privateSchema = v.object({ ...publicSchema.entries, pem: v.string() })
const keysSchema = v.object({
  format: v.literal(1),
  signing: privateSchema,
  signsFromMs: v.number(),
  next: privateSchema,
  retired: v.array(v.object({ ...publicSchema.entries, untilMs: v.number() })),
})

type PublicKeyRecord = v.InferOutput<typeof publicSchema>
type PrivateKeyRecord = v.InferOutput<typeof privateSchema>
type KeySet = v.InferOutput<typeof keysSchema>

/** A member of a JWKS (RFC 7517). */
export interface RsaJsonWebKey {
  readonly use: 'sig'
  readonly kty: 'RSA'
  readonly kid: string
  readonly alg: typeof ALGORITHM
  readonly n: string
  readonly e: string
}

const generateKeyPairAsync = promisify(generateKeyPair)

async function generateKey(): Promise<PrivateKeyRecord> {
  const { privateKey, publicKey } = await generateKeyPairAsync('rsa', { modulusLength: MODULUS_BITS })
  const { e = '', n = '' } = publicKey.export({ format: 'jwk' })
  return { id: randomUUID(), n, e, pem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() }
}

export class OidcKeys {
  readonly #storage: Storage
  readonly #now: () => number
  readonly #stored: StoredSetting<KeySet | null>
  #parsed: { readonly id: string; readonly key: KeyObject } | undefined
  #scheduledRotation: Promise<void> | undefined
  /** Rotations run one after the other, because each generates two keys. */
  readonly #rotations = new Mutex()

  /** `storage` is all of the barrier. `now` is the core's clock. */
  constructor(storage: Storage, now: () => number) {
    this.#storage = storage
    this.#now = now
    this.#stored = new StoredSetting<KeySet | null>(storage, PATH, v.nullable(keysSchema), null)
  }

  /** The signing key. The first call generates it. Throws once the core is sealed. */
  async signing(): Promise<{ readonly id: string; readonly key: KeyObject }> {
    if (this.#isDue(this.#keys())) {
      this.#scheduledRotation ??= this.#replaceKeys((keys) => this.#isDue(keys), VERIFICATION_SECONDS).finally(() => {
        this.#scheduledRotation = undefined
      })
      await this.#scheduledRotation
    }
    const { id, pem } = this.#keys()?.signing ?? { id: '', pem: '' }
    if (this.#parsed?.id !== id) this.#parsed = { id, key: createPrivateKey(pem) }
    return this.#parsed
  }

  /** Keys that verify tokens; none before the first token. */
  publicKeys(): RsaJsonWebKey[] {
    const keys = this.#keys()
    if (!keys) return []
    const retired = keys.retired.filter(({ untilMs }) => untilMs > this.#now())
    return [keys.signing, keys.next, ...retired].map(jwk)
  }

  /** Makes the next key the signing key. The retired key is published for `verificationSeconds`. Calls run in order. */
  rotate(verificationSeconds: number): Promise<void> {
    return this.#rotations.runExclusive(() => this.#replaceKeys(() => true, verificationSeconds))
  }

  #keys(): KeySet | null {
    // Throws once the core is sealed: cached keys must not be used then.
    this.#storage.get(PATH)
    return this.#stored.value
  }

  #isDue(keys: KeySet | null): boolean {
    return !keys || this.#now() - keys.signsFromMs >= ROTATION_SECONDS * 1000
  }

  async #replaceKeys(isDue: (keys: KeySet | null) => boolean, verificationSeconds: number): Promise<void> {
    const [first, second] = await Promise.all([generateKey(), generateKey()])
    const nowMs = this.#now()
    await this.#stored.change((before) => {
      // Another call has replaced the keys meanwhile.
      if (before && !isDue(before)) return before
      if (!before) return { format: 1, signing: first, signsFromMs: nowMs, next: second, retired: [] }
      const { e, id, n } = before.signing
      const untilMs = nowMs + verificationSeconds * 1000
      // Also limits keys that were retired before: a rotation with 0 invalidates all tokens.
      const earlier = before.retired.map((each) => ({ ...each, untilMs: Math.min(each.untilMs, untilMs) }))
      const retired = [{ id, n, e, untilMs }, ...earlier].filter((each) => each.untilMs > nowMs).slice(0, RETIRED_MAX)
      return { format: 1, signing: before.next, signsFromMs: nowMs, next: first, retired }
    })
  }
}

function jwk({ e, id, n }: PublicKeyRecord): RsaJsonWebKey {
  return { use: 'sig', kty: 'RSA', kid: id, alg: ALGORITHM, n, e }
}
