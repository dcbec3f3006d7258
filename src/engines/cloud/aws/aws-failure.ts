/** Failures of calls to AWS, and the errors that callers of the engine get for them. */
import { errnoOf, messageOf } from '../../../platform/errors.ts'
import { Rejection } from '../../framework/engine.ts'
import { InvalidResponse } from './response-limits.ts'

/** Throttling. LimitExceeded is a quota and not among them. */
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
/** Refused because of a concurrent request. */
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
/** Sent by proxies after a timeout: the request may have taken effect. */
const TIMEOUT_STATUS = 408

const CLOCK_HINT = "this server's clock differs from that of AWS: set it, for example by NTP"
const REGION_HINT = 'the region is not that of the endpoint: see region and sts_region of config/root'
const EXPIRED_HINT = 'the root credentials have expired: write new ones to config/root'
const KEY_HINT =
  'AWS does not accept the root credentials: the access key of config/root is wrong, deleted, or not active yet'

export class AwsFailure extends Error {
  override readonly name = 'AwsFailure'
  /** Error code of AWS; empty without a response. */
  readonly code: string
  /** HTTP status; 0 without a response. */
  readonly status: number
  /** Whether the request may have taken effect. */
  readonly isAmbiguous: boolean
  /** What to do, if the code does not determine it. */
  readonly hint: string | undefined

  constructor(code: string, message: string, status: number, isAmbiguous: boolean, hint?: string) {
    super(sanitized(message, MESSAGE_LENGTH_MAX))
    this.code = sanitized(code, CODE_LENGTH_MAX)
    this.status = status
    this.isAmbiguous = isAmbiguous
    this.hint = hint
  }

  get isThrottle(): boolean {
    return THROTTLE_CODES.has(this.code)
  }

  /** Whether a retry may succeed. */
  get isPassing(): boolean {
    return this.isThrottle || this.isAmbiguous || PASSING_CODES.has(this.code)
  }

  /** Whether the access key is unknown, which AWS also reports for some seconds about a new key. */
  get isUnknownKey(): boolean {
    return this.code === 'InvalidClientTokenId' || this.code === 'UnrecognizedClientException'
  }

  /** `Code: message (hint)` */
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

/** Sanitizes a text of the endpoint for logs and terminals. */
function sanitized(text: string, lengthMax: number): string {
  const plain = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ')
  return plain.length > lengthMax ? `${plain.slice(0, lengthMax)}…` : plain
}

/** For a response without the expected content. The request may have taken effect. */
export function invalidResponse(what: string): AwsFailure {
  return new AwsFailure('', `the response has ${what}`, 0, true)
}

interface SdkError {
  readonly name?: unknown
  /** The code of AWS. `name` has a different suffix for errors with a class in the SDK. */
  readonly Code?: unknown
  readonly $metadata?: { readonly httpStatusCode?: number }
}

/** The response was not a document of AWS. The request may have taken effect. */
export class UnreadableResponse extends AwsFailure {}

/** Converts an error of the SDK. `endpoint` is for the message. */
export function failureOf(error: unknown, endpoint: string): AwsFailure {
  if (error instanceof AwsFailure) return error
  const { $metadata, Code, name } = (typeof error === 'object' && error !== null ? error : {}) as SdkError
  const status = $metadata?.httpStatusCode ?? 0
  if (status > 0) {
    const code = typeof Code === 'string' ? Code : typeof name === 'string' ? name : 'Unknown'
    // A success that cannot be parsed: the request may have taken effect.
    if (status < 400)
      return new AwsFailure(
        '',
        `the response from ${endpoint} is not an AWS response: HTTP ${status}, ${code}`,
        status,
        true,
      )
    return new AwsFailure(code, messageOf(error), status, status >= 500 || status === TIMEOUT_STATUS)
  }
  if (name === 'CredentialsProviderError') {
    const why =
      'no root credentials: write access_key and secret_key to config/root, or set them in the environment of the server'
    return new AwsFailure('', `${why} (${messageOf(error)})`, 0, false)
  }
  if (error instanceof InvalidResponse)
    return new UnreadableResponse('', `not a response of AWS from ${endpoint}: ${error.message}`, 0, true)
  const why = errnoOf(error) ?? (typeof name === 'string' && name !== 'Error' ? name : messageOf(error))
  return new AwsFailure('', `no response from ${endpoint}: ${why}`, 0, true)
}

/** The error for callers: 502 if AWS throttles or does not respond, else `status` with the text of AWS. */
export function rejectionOf(prefix: string, error: unknown, status = 400): unknown {
  if (!(error instanceof AwsFailure)) return error
  const isUnavailable = error.isThrottle || error.isAmbiguous
  const text = prefix === '' ? error.text : `${prefix}: ${error.text}`
  return new Rejection(isUnavailable ? 502 : status, text)
}
