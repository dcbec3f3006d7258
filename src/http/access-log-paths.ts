/**
 * Paths in the access log.
 *
 * A path may contain what readers of a log must not see: names of secrets, and tokens, which old clients put there.
 * Only words that an endpoint declares are shown. Parameters are shown as an HMAC whose key is generated at the start and never
 * stored: equal names have equal HMACs within one run, and names cannot be guessed from the log.
 * `isFull` shows names too; paths that no endpoint declares, tokens, and IDs that give access are always shown as HMACs.
 */
import { randomBytes } from 'node:crypto'
import { KeyedHash } from '../platform/keyed-hash.ts'
import type { PathPart } from '../platform/operation.ts'

/** Parts of a decoded path without `/v1/`; undefined if no endpoint declares it. */
export type PathParts = (path: string) => readonly PathPart[] | undefined

/** Vault-compatible tokens, and parts of them. */
const TOKEN = /\b(?:hv[sbr]|[sbr])\.[\w-]{8,}/g
const LENGTH_MAX = 512

export class PathLog {
  readonly #key = new KeyedHash(randomBytes(32))
  readonly #isFull: () => boolean
  readonly #parts: PathParts | undefined

  constructor(options: { readonly isFull: () => boolean; readonly parts?: PathParts | undefined }) {
    this.#isFull = options.isFull
    this.#parts = options.parts
  }

  /** A path of an endpoint without names of secrets. */
  known(path: string): string {
    return this.#withoutTokens(path).slice(0, LENGTH_MAX)
  }

  /** Any other path. */
  unknown(path: string): string {
    const prefix = path.startsWith('/v1/') ? '/v1/' : path.startsWith('/') ? '/' : ''
    const rest = path.slice(prefix.length)
    if (rest === '') return path
    const decoded = decodedOnce(rest)
    const parts = decoded === undefined ? undefined : this.#parts?.(decoded)
    if (!parts) return prefix + this.#hash(rest)
    let shown = prefix
    parts.forEach((part, at) => (shown += (at === 0 ? '' : '/') + this.#shown(part)))
    return shown.length > LENGTH_MAX ? shown.slice(0, LENGTH_MAX) : shown
  }

  #shown({ isName, isSecret, text }: PathPart): string {
    if (!isName) return text
    if (this.#isFull() && isSecret !== true) return this.#withoutTokens(encodeURI(text))
    // Hashes of names are cached. Those of secret IDs are not kept.
    return shownHash(isSecret === true ? this.#key.digest(text, 'base64url') : this.#key.name(text))
  }

  #withoutTokens(text: string): string {
    return text.includes('.') ? text.replaceAll(TOKEN, (token) => this.#hash(token)) : text
  }

  #hash(text: string): string {
    return shownHash(this.#key.digest(text, 'base64url'))
  }
}

function shownHash(digest: string): string {
  return `hmac:${digest.slice(0, 16)}`
}

function decodedOnce(path: string): string | undefined {
  let decoded = path
  try {
    if (path.includes('%')) decoded = decodeURIComponent(path)
  } catch {
    return undefined
  }
  if (decoded.includes('//')) decoded = decoded.replaceAll(/\/{2,}/g, '/')
  return decoded.startsWith('/') ? decoded.slice(1) : decoded
}
