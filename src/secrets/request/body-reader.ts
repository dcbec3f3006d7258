/**
 * Bounds the cost of parsing request bodies by the caller's permissions. Parsing a megabyte of JSON may take 0.1 s, and 1 s
 * when an audit device hashes its values. Therefore a caller without a token may send few fields only, and a long body is not
 * parsed if the caller's policies grant nothing on the path.
 */
import { denied, type EngineVerb, Rejection } from '../../engines/framework/engine.ts'
import type { RawInput } from '../../platform/schema.ts'
import type { JsonLimits } from './json.ts'
import type { Decision } from '../policies/acl.ts'
import { type RequestBody, requestBody, type Verb } from './parse-request.ts'

/** Limits for a caller without a token. */
const ANONYMOUS_CHARACTERS_MAX = 1 << 20
/** Far more than the fields of any open path. */
const ANONYMOUS_LIMITS: JsonLimits = { valuesMax: 2000, namesMax: 1000 }
/** Parsing a longer body costs more than a second check of the policies. */
const LONG_CHARACTERS = 1 << 14

/** The operations that a verb with a body can become. */
const OPERATIONS: Readonly<Partial<Record<Verb, readonly EngineVerb[]>>> = {
  write: ['create', 'update'],
  patch: ['patch'],
  delete: ['delete'],
}
/** Reasons that do not depend on the data of a request. */
const DATA_INDEPENDENT: ReadonlySet<Decision['reason']> = new Set(['no rule', 'deny', 'not granted', 'template'])

export interface BodyReaderOptions {
  readonly allowsDeleteBody: boolean | undefined
  /** The caller has no valid token. */
  readonly isAnonymous: boolean
  /** The path's limit in characters; undefined for no limit. */
  readonly charactersMax?: number | undefined
  /** Checks the caller's policies without data; absent on open paths. */
  readonly judge: ((operation: EngineVerb) => Decision) | undefined
}

export class BodyReader {
  readonly #verb: Verb
  readonly #raw: RawInput
  readonly #options: BodyReaderOptions
  #body: { readonly value: RequestBody } | { readonly error: unknown } | undefined

  constructor(verb: Verb, raw: RawInput, options: BodyReaderOptions) {
    this.#verb = verb
    this.#raw = raw
    this.#options = options
  }

  /** A Rejection (413) if the body is longer than the caller or the path may have; otherwise undefined. */
  get refusal(): Rejection | undefined {
    const { charactersMax = Number.POSITIVE_INFINITY, isAnonymous } = this.#options
    const { body, isBodyLeft } = this.#raw
    const length = body?.length ?? 0
    if (isBodyLeft === true || (isAnonymous && length > ANONYMOUS_CHARACTERS_MAX)) {
      return new Rejection(413, 'http: request body too large')
    }
    if (length <= charactersMax) return undefined
    const text = `request body too large: ${length} characters, this path takes at most ${charactersMax}: send several requests`
    return new Rejection(413, text)
  }

  /** Parses the body once. Throws the same Rejection each time if it is malformed, too large, or denied by policy. */
  read(): RequestBody {
    this.#body ??= this.#outcome()
    if ('error' in this.#body) throw this.#body.error
    return this.#body.value
  }

  #outcome(): { readonly value: RequestBody } | { readonly error: unknown } {
    const { isAnonymous, allowsDeleteBody } = this.#options
    try {
      const { refusal } = this
      if (refusal) throw refusal
      if (this.#isDenied()) throw denied()
      return { value: requestBody(this.#verb, this.#raw, allowsDeleteBody, isAnonymous ? ANONYMOUS_LIMITS : undefined) }
    } catch (error) {
      return { error }
    }
  }

  /** True for a long body of a caller that the policies refuse with any data. */
  #isDenied(): boolean {
    const { isAnonymous, judge } = this.#options
    const operations = OPERATIONS[this.#verb]
    if (isAnonymous || !judge || !operations || (this.#raw.body?.length ?? 0) <= LONG_CHARACTERS) return false
    return operations.map(judge).every(({ allowed, reason }) => !allowed && DATA_INDEPENDENT.has(reason))
  }
}
