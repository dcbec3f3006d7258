/**
 * Paths as the access log shows them.
 *
 * A path may hold what is no business of a log's reader: names of secrets, and tokens, which clients of old put there.
 * So only words that an endpoint declares are shown as they are. What a caller has put in is shown as an HMAC, whose key
 * is made at the start and is never written down: equal names look alike in the lines of one run, and the log is of no use to
 * who would try names. `isFull` shows names too; what no endpoint declares, what looks like a token, and IDs that open
 * something are HMACs always.
 */
import { randomBytes } from 'node:crypto'
import { KeyedHash } from '../platform/keyed-hash.ts'
import type { PathPart } from '../platform/operation.ts'

/** The parts of a path without `/v1/`, percent-decoded once; undefined for one that no endpoint declares. */
export type PathParts = (path: string) => readonly PathPart[] | undefined

/** Tokens as servers of secrets make them, and parts of them. */
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

  /** A path whose endpoint takes no names of secrets. */
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
    // Names are asked for again and again, and their hashes are remembered. What opens something is not kept.
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
