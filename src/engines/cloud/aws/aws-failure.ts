/** What a call to AWS can fail with, in one form, and what a caller of the engine is told of it. */
import { errnoOf, messageOf } from '../../../platform/errors.ts'
import { Rejection } from '../../framework/engine.ts'
import { StrangeAnswer } from './aws-answer.ts'

/** Codes by which AWS says that it is asked too often; LimitExceeded is a quota and none of them. */
const THROTTLE_CODES: ReadonlySet<string> = new Set([
  'EC2ThrottledException',
  'PriorRequestNotComplete',
  'ProvisionedThroughputExceededException',
  'RequestLimitExceeded',
  'RequestThrottled',
  'RequestThrottledException',
  'SlowDown',
  'ThrottledException',
  'Throttling',
  'ThrottlingException',
  'TooManyRequestsException',
  'TransactionInProgressException',
])
/** Refused for what another request does at this moment. */
const PASSING_CODES: ReadonlySet<string> = new Set([
  'ConcurrentModification',
  'EntityTemporarilyUnmodifiable',
  // AWS could not read the keys of an issuer.
  'IDPCommunicationError',
])
const CREDENTIAL_CODES: ReadonlySet<string> = new Set([
  'InvalidClientTokenId',
  'SignatureDoesNotMatch',
  'UnrecognizedClientException',
])
const SKEW_CODES: ReadonlySet<string> = new Set(['RequestExpired', 'RequestTimeTooSkewed', 'RequestInTheFuture'])
const EXPIRED_CODES: ReadonlySet<string> = new Set(['ExpiredToken', 'ExpiredTokenException'])

const MESSAGE_LENGTH_MAX = 1000
const CODE_LENGTH_MAX = 100
/** Not that there is something, nor that it is refused: answers of proxies that gave up waiting. */
const TIMEOUT_STATUS = 408

const CLOCK_HINT = "this server's clock differs from that of AWS: set it, for example by NTP"
const REGION_HINT = 'the region is not that of the endpoint: see region and sts_region of config/root'
const EXPIRED_HINT = 'the root credentials have expired: write new ones to config/root'
const KEY_HINT =
  'AWS does not accept the root credentials: the access key of config/root is wrong, deleted, or not active yet'

export class AwsFailure extends Error {
  override readonly name = 'AwsFailure'
  /** The code of AWS; empty where no answer came. */
  readonly code: string
  /** Of the HTTP answer; 0 where none came. */
  readonly status: number
  /** Whether the action may have taken effect. */
  readonly isAmbiguous: boolean
  /** What to do, where that is not told by the code. */
  readonly hint: string | undefined

  constructor(code: string, message: string, status: number, isAmbiguous: boolean, hint?: string) {
    super(shown(message, MESSAGE_LENGTH_MAX))
    this.code = shown(code, CODE_LENGTH_MAX)
    this.status = status
    this.isAmbiguous = isAmbiguous
    this.hint = hint
  }

  get isThrottle(): boolean {
    return THROTTLE_CODES.has(this.code)
  }

  /** Whether the same request may succeed a little later. */
  get isPassing(): boolean {
    return this.isThrottle || this.isAmbiguous || PASSING_CODES.has(this.code)
  }

  /** Whether AWS does not know the caller's key, which a new key is answered with for some seconds. */
  get isUnknownKey(): boolean {
    return this.code === 'InvalidClientTokenId' || this.code === 'UnrecognizedClientException'
  }

  /** `Code: message`, with what to do where that is known. */
  get text(): string {
    const hint = this.hint ?? this.#hint()
    const whole = this.code === '' ? this.message : `${this.code}: ${this.message}`
    return hint === undefined ? whole : `${whole} (${hint})`
  }

  #hint(): string | undefined {
    if (SKEW_CODES.has(this.code)) return CLOCK_HINT
    if (this.code === 'SignatureDoesNotMatch' && /expired|not yet current/i.test(this.message)) return CLOCK_HINT
    if (this.code === 'SignatureDoesNotMatch' && /scoped to a (valid|correct) region/i.test(this.message))
      return REGION_HINT
    if (EXPIRED_CODES.has(this.code)) return EXPIRED_HINT
    return CREDENTIAL_CODES.has(this.code) ? KEY_HINT : undefined
  }
}

/** A text of the endpoint, for logs and terminals. */
function shown(text: string, most: number): string {
  const plain = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ')
  return plain.length > most ? `${plain.slice(0, most)}…` : plain
}

/** An answer that lacks what was asked for: it may have been done. */
export function strangeAnswer(what: string): AwsFailure {
  return new AwsFailure('', `the answer has ${what}`, 0, true)
}

interface SdkError {
  readonly name?: unknown
  /** As it came; `name` has another ending for the errors that the SDK has a class for. */
  readonly Code?: unknown
  readonly $metadata?: { readonly httpStatusCode?: number }
}

/** An answer came, and was no document of AWS: what was asked for may have been done. */
export class UnreadableAnswer extends AwsFailure {}

/** Of anything that the SDK has thrown. `endpoint` is named where it could not be reached. */
export function failureOf(error: unknown, endpoint: string): AwsFailure {
  if (error instanceof AwsFailure) return error
  const { $metadata, Code, name } = (typeof error === 'object' && error !== null ? error : {}) as SdkError
  const status = $metadata?.httpStatusCode ?? 0
  if (status > 0) {
    const code = typeof Code === 'string' ? Code : typeof name === 'string' ? name : 'Unknown'
    // What cannot be read of an answer that refuses nothing: it may have been done.
    if (status < 400)
      return new AwsFailure('', `no answer of AWS from ${endpoint}: HTTP ${status}, ${code}`, status, true)
    return new AwsFailure(code, messageOf(error), status, status >= 500 || status === TIMEOUT_STATUS)
  }
  if (name === 'CredentialsProviderError') {
    const why = 'no root credentials: write access_key and secret_key to config/root, or give the server some'
    return new AwsFailure('', `${why} (${messageOf(error)})`, 0, false)
  }
  if (error instanceof StrangeAnswer)
    return new UnreadableAnswer('', `no answer of AWS from ${endpoint}: ${error.message}`, 0, true)
  const why = errnoOf(error) ?? (typeof name === 'string' && name !== 'Error' ? name : messageOf(error))
  return new AwsFailure('', `no answer from ${endpoint}: ${why}`, 0, true)
}

/** What a caller is told: 502 where AWS throttles or does not answer, else 400 with AWS's own text. */
export function rejectionOf(prefix: string, error: unknown, status = 400): unknown {
  if (!(error instanceof AwsFailure)) return error
  const isOutside = error.isThrottle || error.isAmbiguous
  const text = prefix === '' ? error.text : `${prefix}: ${error.text}`
  return new Rejection(isOutside ? 502 : status, text)
}
