/**
 * The keys that identity tokens are signed with. There are two of them from the first token on: one that signs, and the next
 * one, which is told to those who check tokens a whole period before it signs. A key that no longer signs is told until the
 * last token that it signed has ended.
 */
import { createPrivateKey, generateKeyPair, type KeyObject, randomUUID } from 'node:crypto'
import { promisify } from 'node:util'
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { StoredSetting } from '../settings/stored-setting.ts'

export const ALGORITHM = 'RS256'
const MODULUS_BITS = 2048
/** For how long one key signs. */
export const ROTATION_SECONDS = 86_400
/** For how long it is told after that. No token is good for longer. */
export const VERIFICATION_SECONDS = 86_400
/** Rotations on request leave old keys behind; the oldest go first. */
const RETIRED_MAX = 20
const PATH = 'sys/oidc/keys'

const publicSchema = v.object({ id: v.string(), n: v.string(), e: v.string() })
const privateSchema = v.object({ ...publicSchema.entries, pem: v.string() })
const keysSchema = v.object({
  format: v.literal(1),
  signing: privateSchema,
  /** Since when it signs. */
  signsFromMs: v.number(),
  next: privateSchema,
  retired: v.array(v.object({ ...publicSchema.entries, untilMs: v.number() })),
})

type PublicKey = v.InferOutput<typeof publicSchema>
type PrivateKey = v.InferOutput<typeof privateSchema>
type Keys = v.InferOutput<typeof keysSchema>

/** A member of a JWKS (RFC 7517). */
export interface ShownKey {
  readonly use: 'sig'
  readonly kty: 'RSA'
  readonly kid: string
  readonly alg: typeof ALGORITHM
  readonly n: string
  readonly e: string
}

const generate = promisify(generateKeyPair)

async function freshKey(): Promise<PrivateKey> {
  const { privateKey, publicKey } = await generate('rsa', { modulusLength: MODULUS_BITS })
  const { e = '', n = '' } = publicKey.export({ format: 'jwk' })
  return { id: randomUUID(), n, e, pem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() }
}

export class OidcKeys {
  readonly #storage: Storage
  readonly #now: () => number
  readonly #kept: StoredSetting<Keys | null>
  #parsed: { readonly id: string; readonly key: KeyObject } | undefined
  #making: Promise<void> | undefined
  /** The rotation that was asked for last: the next one waits for it, so callers make two keys at a time together. */
  #rotating: Promise<void> = Promise.resolve()

  /** `storage` is all of the barrier; `now` is the clock that lives are measured with. */
  constructor(storage: Storage, now: () => number) {
    this.#storage = storage
    this.#now = now
    this.#kept = new StoredSetting<Keys | null>(storage, PATH, v.nullable(keysSchema), null)
  }

  /** The key to sign with; the first call makes it. Throws once the core is sealed. */
  async signing(): Promise<{ readonly id: string; readonly key: KeyObject }> {
    if (this.#isDue(this.#keys())) {
      this.#making ??= this.#rotated((keys) => this.#isDue(keys), VERIFICATION_SECONDS).finally(() => {
        this.#making = undefined
      })
      await this.#making
    }
    const { id, pem } = this.#keys()?.signing ?? { id: '', pem: '' }
    if (this.#parsed?.id !== id) this.#parsed = { id, key: createPrivateKey(pem) }
    return this.#parsed
  }

  /** Keys by which a token can be checked; none before the first token. */
  shown(): ShownKey[] {
    const keys = this.#keys()
    if (!keys) return []
    const retired = keys.retired.filter(({ untilMs }) => untilMs > this.#now())
    return [keys.signing, keys.next, ...retired].map(jwk)
  }

  /** Lets the next key sign from now on; the one before is told for so long. One rotation at a time, in the order of the calls. */
  rotate(verificationSeconds: number): Promise<void> {
    const rotated = this.#rotating.then(() => this.#rotated(() => true, verificationSeconds))
    // A rotation that failed is its caller's; the next one goes on.
    this.#rotating = rotated.catch(() => undefined)
    return rotated
  }

  #keys(): Keys | null {
    // Nothing of it may be used once the core is sealed, although it is in memory.
    this.#storage.get(PATH)
    return this.#kept.value
  }

  #isDue(keys: Keys | null): boolean {
    return !keys || this.#now() - keys.signsFromMs >= ROTATION_SECONDS * 1000
  }

  async #rotated(isWanted: (keys: Keys | null) => boolean, verificationSeconds: number): Promise<void> {
    const [first, second] = await Promise.all([freshKey(), freshKey()])
    const nowMs = this.#now()
    await this.#kept.change((before) => {
      // Another one was quicker.
      if (before && !isWanted(before)) return before
      if (!before) return { format: 1, signing: first, signsFromMs: nowMs, next: second, retired: [] }
      const { e, id, n } = before.signing
      const untilMs = nowMs + verificationSeconds * 1000
      // Those that stopped signing before may be told for no longer either: who rotates with 0 ends all tokens.
      const earlier = before.retired.map((each) => ({ ...each, untilMs: Math.min(each.untilMs, untilMs) }))
      const retired = [{ id, n, e, untilMs }, ...earlier].filter((each) => each.untilMs > nowMs).slice(0, RETIRED_MAX)
      return { format: 1, signing: before.next, signsFromMs: nowMs, next: first, retired }
    })
  }
}

function jwk({ e, id, n }: PublicKey): ShownKey {
  return { use: 'sig', kty: 'RSA', kid: id, alg: ALGORITHM, n, e }
}
