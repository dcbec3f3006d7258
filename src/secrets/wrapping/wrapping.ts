/**
 * Response wrapping: an answer is kept below a token of its own, and its caller gets that token instead. Who has the token
 * gets the answer, once.
 *
 * Promises. An answer that was wrapped, the token, and whatever the request wrote or gave out are durable in one commit, or
 * none of it is. A wrapping token is good for one use: of fifty callers at once one gets the answer. The use is durable
 * before the answer leaves, so a process that is killed in between loses the answer and never gives it twice. Every use is
 * the last one, also one that is refused.
 *
 * Assumes that who knows the token may have the answer: looking at it and unwrapping need no other token.
 *
 * What can go wrong. The token expires: the answer is removed with it. What the answer gave out (a lease, a token) belongs to
 * the caller who asked for it and lives on by its own terms.
 */
import { type Part, Storage } from '../../storage/barrier/storage.ts'
import { cubbyholePrefix } from '../../engines/cubbyhole/cubbyhole.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { isObject } from '../../engines/framework/fields.ts'
import { Fault } from '../../platform/errors.ts'
import { hasExpired, randomName, type TokenEntry } from '../tokens/token-entry.ts'
import type { TokenRevocation } from '../tokens/token-revocation.ts'
import { newTokenText, type TokenStore } from '../tokens/token-store.ts'
import { WrappingKey } from './wrapping-key.ts'

const POLICY = 'response-wrapping'
/** Of the token's cubbyhole, where old clients look for the answer. */
const RESPONSE = 'response'
const FACTS = 'wrapinfo'
/** 32 days, as of anything that ends. */
const TTL_SECONDS_MAX = 768 * 3600

/** How an answer is to be wrapped. */
export interface WrapOrder {
  readonly ttlSeconds: number
  readonly isJwt: boolean
  /** Path of the request that is answered. */
  readonly creationPath: string
  /** Of the token that the answer brings, where it does. */
  readonly wrappedAccessor: string | undefined
}

/** The member `wrap_info` of an answer. */
export interface WrapInfo {
  readonly token: string
  readonly accessor: string
  readonly ttl: number
  readonly creation_time: string
  readonly creation_path: string
  readonly wrapped_accessor?: string
}

/** What lookup tells. */
export interface WrapFacts {
  readonly creation_path: string
  readonly creation_time: string
  readonly creation_ttl: number
}

export interface WrappingOptions {
  readonly tokens: TokenStore
  readonly revocation: TokenRevocation
  /** All of the barrier. */
  readonly storage: Storage
  /** Of all tokens. */
  readonly cubbyholes: Storage
  readonly now: () => number
  /** Where this server is reached, for tokens that name it. */
  readonly apiAddress: () => string
}

export class Wrapping {
  readonly #options: WrappingOptions
  readonly #key: WrappingKey

  constructor(options: WrappingOptions) {
    this.#options = options
    this.#key = new WrappingKey(options.storage)
  }

  /** Throws a Rejection (400) for a time that no token can have. */
  static check(ttlSeconds: number): void {
    if (ttlSeconds <= TTL_SECONDS_MAX) return
    throw new Rejection(400, `requested wrap ttl is longer than ${TTL_SECONDS_MAX} seconds`)
  }

  /** A token for an answer, `envelope`, and what is to be committed for it. Nobody has either before that is durable. */
  wrap(envelope: string, order: WrapOrder): { readonly info: WrapInfo; readonly parts: Part[] } {
    const { cubbyholes, now, tokens } = this.#options
    const nowMs = now()
    const token = newTokenText()
    const entry = wrappingEntry(tokens.hashOf(token), order, nowMs)
    const facts: WrapFacts = {
      creation_path: order.creationPath,
      creation_time: new Date(nowMs).toISOString(),
      creation_ttl: order.ttlSeconds,
    }
    const place = cubbyholePrefix(entry.hash)
    const puts = [
      { path: place + RESPONSE, value: Buffer.from(JSON.stringify({ response: envelope.trimEnd() })) },
      { path: place + FACTS, value: Buffer.from(JSON.stringify(facts)) },
    ]
    const parts = [tokens.orphanPart(entry), { storage: cubbyholes, batch: { puts, deletes: [] } }]
    const keyPart = order.isJwt ? this.#key.ready() : undefined
    if (keyPart) parts.push(keyPart)
    const shown = order.isJwt ? this.#key.sign(token, this.#options.apiAddress(), nowMs, order.ttlSeconds) : token
    const info = {
      token: shown,
      accessor: entry.accessor,
      ttl: order.ttlSeconds,
      creation_time: facts.creation_time,
      creation_path: facts.creation_path,
      ...(order.wrappedAccessor !== undefined && { wrapped_accessor: order.wrappedAccessor }),
    }
    return { info, parts }
  }

  /** When and for what a token was made. Throws a Rejection (400) for what is no wrapping token. */
  lookup(given: string): WrapFacts {
    return this.#factsOf(this.#entryOf(given))
  }

  /** The answer, as the text of its envelope; the token is spent. Rejects with a Rejection (400) for what is no wrapping token. */
  async unwrap(given: string): Promise<string> {
    const entry = this.#entryOf(given)
    const envelope = this.#envelopeOf(entry)
    await this.#useUp(entry)
    return envelope
  }

  /** The same answer below a token with the same terms; the first is spent in the same commit. Rejects as `unwrap`. */
  async rewrap(given: string): Promise<WrapInfo> {
    const entry = this.#entryOf(given)
    const { creation_path: creationPath, creation_ttl: ttlSeconds } = this.#factsOf(entry)
    const order = { ttlSeconds, isJwt: false, creationPath, wrappedAccessor: undefined }
    const { info, parts } = this.wrap(this.#envelopeOf(entry), order)
    await this.#useUp(entry, parts)
    return info
  }

  /** The public key of tokens that are JSON Web Tokens. */
  async publicKey(): Promise<{ readonly x: string; readonly y: string; readonly curve: string }> {
    const part = this.#key.ready()
    if (part) await Storage.commitAll([part])
    return this.#key.coordinates()
  }

  close(): void {
    this.#key.close()
  }

  /** Resolves when the token's only use and `more` are durable, in one commit, and the token is revoked. */
  async #useUp(entry: TokenEntry, more: readonly Part[] = []): Promise<void> {
    const use = this.#options.revocation.takeLastUse(entry, more)
    await use.written
    await use.revokeSpent()
  }

  #entryOf(given: string): TokenEntry {
    const { now, tokens } = this.#options
    const token = this.#key.tokenIn(given, now()) ?? given
    const entry = token === '' ? undefined : tokens.pending(tokens.hashOf(token))
    const isOne = entry?.policies.length === 1 && entry.policies[0] === POLICY
    if (!entry || !isOne || entry.usesLeft !== 1 || entry.isLeaving || hasExpired(entry, now())) throw invalid()
    return entry
  }

  #envelopeOf({ hash }: TokenEntry): string {
    const envelope = this.#kept(hash, RESPONSE)['response']
    if (typeof envelope !== 'string') throw new Fault('the answer below a wrapping token is damaged')
    return envelope
  }

  #factsOf({ hash }: TokenEntry): WrapFacts {
    const facts = this.#kept(hash, FACTS)
    const { creation_path: path, creation_time: time, creation_ttl: ttl } = facts
    if (typeof path !== 'string' || typeof time !== 'string' || typeof ttl !== 'number') {
      throw new Fault('the facts below a wrapping token are damaged')
    }
    return { creation_path: path, creation_time: time, creation_ttl: ttl }
  }

  #kept(hash: string, name: string): Readonly<Record<string, unknown>> {
    const bytes = this.#options.cubbyholes.pending(cubbyholePrefix(hash) + name)
    if (!bytes) throw invalid()
    const value: unknown = JSON.parse(bytes.toString('utf8'))
    if (!isObject(value)) throw new Fault('what is below a wrapping token is damaged')
    return value
  }
}

function invalid(): Rejection {
  return new Rejection(400, 'wrapping token is not valid or does not exist')
}

function wrappingEntry(hash: string, { creationPath, ttlSeconds }: WrapOrder, nowMs: number): TokenEntry {
  return {
    hash,
    accessor: randomName(24),
    type: 'service',
    policies: [POLICY],
    displayName: '',
    path: creationPath,
    meta: null,
    parent: '',
    depth: 0,
    entityId: '',
    role: '',
    usesLeft: 1,
    createdAtMs: nowMs,
    ttlSeconds,
    leaseSeconds: ttlSeconds,
    explicitMaxTtlSeconds: ttlSeconds,
    periodSeconds: 0,
    renewable: false,
    boundCidrs: [],
    expiresAtMs: nowMs + ttlSeconds * 1000,
  }
}
