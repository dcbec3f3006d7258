/**
 * When the body of a request is read, and how much of it: what it costs is bounded by what its caller has shown. A megabyte of JSON may
 * cost a tenth of a second, and a second where its values are recorded, so whoever has no token may send a short list of
 * fields only, and the long body of a caller whose policies have nothing for the path is not read at all.
 */
import { denied, type EngineVerb, Rejection } from '../../engines/framework/engine.ts'
import type { RawInput } from '../../platform/schema.ts'
import type { JsonLimits } from './json.ts'
import type { Decision } from '../policies/acl.ts'
import { type RequestBody, requestBody, type Verb } from './request.ts'

/** Most characters of a body from somebody without a token. */
const NOBODYS_CHARACTERS_MAX = 1 << 20
/** Far more than any path has fields that is open to everybody. */
const NOBODYS_LIMITS: JsonLimits = { valuesMax: 2000, namesMax: 1000 }
/** From here on reading a body costs more than asking the policies twice. */
const LONG_CHARACTERS = 1 << 14

/** What the policies may be asked about, of verbs that have a body. */
const ASKED_FOR: Readonly<Partial<Record<Verb, readonly EngineVerb[]>>> = {
  write: ['create', 'update'],
  patch: ['patch'],
  delete: ['delete'],
}
/** What no data of a request changes. */
const WITHOUT_DATA: ReadonlySet<Decision['reason']> = new Set(['no rule', 'deny', 'not granted', 'template'])

export interface BodyReaderOptions {
  readonly isOfDelete: boolean | undefined
  /** The caller has no token, or none that is one. */
  readonly isNobodys: boolean
  /** Most characters that the path takes; undefined: no limit of its own. */
  readonly charactersMax?: number | undefined
  /** What the caller's policies say where there is no data; absent where they are not asked. */
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

  /** The refusal (413) of a body that is longer than this caller may send, or than the path takes; undefined for any other. */
  get refusal(): Rejection | undefined {
    const { charactersMax = Number.POSITIVE_INFINITY, isNobodys } = this.#options
    const { body, isBodyLeft } = this.#raw
    const length = body?.length ?? 0
    if (isBodyLeft === true || (isNobodys && length > NOBODYS_CHARACTERS_MAX)) {
      return new Rejection(413, 'http: request body too large')
    }
    if (length <= charactersMax) return undefined
    const text = `request body too large: ${length} characters, this path takes at most ${charactersMax}: send several requests`
    return new Rejection(413, text)
  }

  /** Reads it once. Throws a Rejection for one that cannot be read, or need not be; the same each time. */
  read(): RequestBody {
    this.#body ??= this.#outcome()
    if ('error' in this.#body) throw this.#body.error
    return this.#body.value
  }

  #outcome(): { readonly value: RequestBody } | { readonly error: unknown } {
    const { isNobodys, isOfDelete } = this.#options
    try {
      const { refusal } = this
      if (refusal) throw refusal
      if (this.#isHopeless()) throw denied()
      return { value: requestBody(this.#verb, this.#raw, isOfDelete, isNobodys ? NOBODYS_LIMITS : undefined) }
    } catch (error) {
      return { error }
    }
  }

  /** A long body of a caller who is refused whatever it says. */
  #isHopeless(): boolean {
    const { isNobodys, judge } = this.#options
    const verbs = ASKED_FOR[this.#verb]
    if (isNobodys || !judge || !verbs || (this.#raw.body?.length ?? 0) <= LONG_CHARACTERS) return false
    return verbs.map(judge).every(({ allowed, reason }) => !allowed && WITHOUT_DATA.has(reason))
  }
}
