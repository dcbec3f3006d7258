/**
 * Response wrapping: an answer is stored in the cubbyhole of a new token, and the caller receives that token instead. The holder of the
 * token can read the answer once.
 *
 * Promises. The wrapped answer, its token, and everything that the request wrote or issued are durable in one commit, or nothing is. A
 * wrapping token has one use: of any number of concurrent callers, one gets the answer. The use is durable before the answer is sent, so
 * after a kill in between the answer is lost and never sent twice. A refused request is a use, too.
 *
 * Assumes that the holder of the token may read the answer: lookup and unwrap require no other token.
 *
 * Failure modes. The token expires: the answer is removed with it. A lease or token in the answer belongs to the caller of the wrapped
 * request and expires by its own TTL.
 */
import { type CommitPart, Storage } from '../../storage/barrier/storage.ts'
import { cubbyholePrefix } from '../../engines/cubbyhole/cubbyhole.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { isObject } from '../../engines/framework/fields.ts'
import { Fault } from '../../platform/errors.ts'
import { hasExpired, randomName, type TokenEntry } from '../tokens/token-entry.ts'
import { SYSTEM_MAX_TTL_SECONDS } from '../mounts/mount-ttl.ts'
import type { TokenRevocation } from '../tokens/token-revocation.ts'
import { newTokenText, type TokenStore } from '../tokens/token-store.ts'
import { WrappingKey } from './wrapping-key.ts'

const POLICY = 'response-wrapping'
/** Entries of the token's cubbyhole. Old clients read `response` there. */
const RESPONSE = 'response'
const INFO = 'wrapinfo'

export interface WrapRequest {
  readonly ttlSeconds: number
  readonly isJwt: boolean
  /** Path of the wrapped request. */
  readonly creationPath: string
  /** Accessor of the token in the answer, if there is one. */
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

/** The answer of a lookup. */
export interface WrapLookup {
  readonly creation_path: string
  readonly creation_time: string
  readonly creation_ttl: number
}

export interface WrappingOptions {
  readonly tokens: TokenStore
  readonly revocation: TokenRevocation
  /** All of the barrier. */
  readonly storage: Storage
  /** The cubbyholes of all tokens. */
  readonly cubbyholes: Storage
  readonly now: () => number
  /** Address of this server, for tokens that contain it. */
  readonly apiAddress: () => string
}

export class ResponseWrapping {
  readonly #options: WrappingOptions
  readonly #key: WrappingKey

  constructor(options: WrappingOptions) {
    this.#options = options
    this.#key = new WrappingKey(options.storage)
  }

  /** Throws a Rejection (400) for a TTL above the limit. */
  static check(ttlSeconds: number): void {
    if (ttlSeconds <= SYSTEM_MAX_TTL_SECONDS) return
    throw new Rejection(400, `requested wrap ttl is longer than ${SYSTEM_MAX_TTL_SECONDS} seconds`)
  }

  /** Creates the token of an answer, `envelope`. The parts must be durable before the token is sent. */
  wrap(envelope: string, request: WrapRequest): { readonly info: WrapInfo; readonly parts: CommitPart[] } {
    const { cubbyholes, now, tokens } = this.#options
    const nowMs = now()
    const token = newTokenText()
    const entry = wrappingEntry(tokens.hashOf(token), request, nowMs)
    const lookup: WrapLookup = {
      creation_path: request.creationPath,
      creation_time: new Date(nowMs).toISOString(),
      creation_ttl: request.ttlSeconds,
    }
    const prefix = cubbyholePrefix(entry.hash)
    const puts = [
      { path: prefix + RESPONSE, value: Buffer.from(JSON.stringify({ response: envelope.trimEnd() })) },
      { path: prefix + INFO, value: Buffer.from(JSON.stringify(lookup)) },
    ]
    const parts = [tokens.orphanPart(entry), { storage: cubbyholes, batch: { puts, deletes: [] } }]
    const keyPart = request.isJwt ? this.#key.unsavedPart() : undefined
    if (keyPart) parts.push(keyPart)
    const shownToken = request.isJwt
      ? this.#key.sign(token, this.#options.apiAddress(), nowMs, request.ttlSeconds)
      : token
    const info = {
      token: shownToken,
      accessor: entry.accessor,
      ttl: request.ttlSeconds,
      creation_time: lookup.creation_time,
      creation_path: lookup.creation_path,
      ...(request.wrappedAccessor !== undefined && { wrapped_accessor: request.wrappedAccessor }),
    }
    return { info, parts }
  }

  /** Throws a Rejection (400) for an invalid wrapping token. */
  lookup(given: string): WrapLookup {
    return this.#lookupOf(this.#entryOf(given))
  }

  /** Resolves to the answer's envelope and revokes the token. Rejects with a Rejection (400) for an invalid wrapping token. */
  async unwrap(given: string): Promise<string> {
    const entry = this.#entryOf(given)
    const envelope = this.#envelopeOf(entry)
    await this.#useUp(entry)
    return envelope
  }

  /** Moves the answer to a new token with the same TTL; the old token is used up in the same commit. Rejects as `unwrap`. */
  async rewrap(given: string): Promise<WrapInfo> {
    const entry = this.#entryOf(given)
    const { creation_path: creationPath, creation_ttl: ttlSeconds } = this.#lookupOf(entry)
    const request = { ttlSeconds, isJwt: false, creationPath, wrappedAccessor: undefined }
    const { info, parts } = this.wrap(this.#envelopeOf(entry), request)
    await this.#useUp(entry, parts)
    return info
  }

  /** The public key that verifies JSON Web Tokens of this server. */
  async publicKey(): Promise<{ readonly x: string; readonly y: string; readonly curve: string }> {
    const part = this.#key.unsavedPart()
    if (part) await Storage.commitAll([part])
    return this.#key.coordinates()
  }

  close(): void {
    this.#key.close()
  }

  /** Resolves when the token's only use and `more` are durable, in one commit, and the token is revoked. */
  async #useUp(entry: TokenEntry, more: readonly CommitPart[] = []): Promise<void> {
    const use = this.#options.revocation.takeLastUse(entry, more)
    await use.written
    await use.revokeSpent()
  }

  #entryOf(given: string): TokenEntry {
    const { now, tokens } = this.#options
    const token = this.#key.tokenIn(given, now()) ?? given
    const entry = token === '' ? undefined : tokens.pending(tokens.hashOf(token))
    const isWrapping = entry?.policies.length === 1 && entry.policies[0] === POLICY
    if (!entry || !isWrapping || entry.usesLeft !== 1 || entry.isLeaving || hasExpired(entry, now())) throw invalid()
    return entry
  }

  #envelopeOf({ hash }: TokenEntry): string {
    const envelope = this.#read(hash, RESPONSE)['response']
    if (typeof envelope !== 'string') throw new Fault('the response of a wrapping token is damaged')
    return envelope
  }

  #lookupOf({ hash }: TokenEntry): WrapLookup {
    const { creation_path: path, creation_time: time, creation_ttl: ttl } = this.#read(hash, INFO)
    if (typeof path !== 'string' || typeof time !== 'string' || typeof ttl !== 'number') {
      throw new Fault('the creation info of a wrapping token is damaged')
    }
    return { creation_path: path, creation_time: time, creation_ttl: ttl }
  }

  #read(hash: string, name: string): Readonly<Record<string, unknown>> {
    const bytes = this.#options.cubbyholes.pending(cubbyholePrefix(hash) + name)
    if (!bytes) throw invalid()
    const value: unknown = JSON.parse(bytes.toString('utf8'))
    if (!isObject(value)) throw new Fault('the cubbyhole of a wrapping token is damaged')
    return value
  }
}

function invalid(): Rejection {
  return new Rejection(400, 'wrapping token is not valid or does not exist')
}

function wrappingEntry(hash: string, { creationPath, ttlSeconds }: WrapRequest, nowMs: number): TokenEntry {
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
