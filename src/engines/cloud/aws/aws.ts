/**
 * Clients of AWS. The only file that loads the SDK, on the first call.
 *
 * A client retries a request up to `max_retries` of config/root, with exponential backoff. A permanent refusal is returned
 * immediately. A request that may have taken effect without a response is retried only if it is idempotent: `isOnce` marks the
 * others, and the caller then checks what exists.
 */
import { randomInt } from 'node:crypto'
import type { IAM } from '@aws-sdk/client-iam'
import type { STS } from '@aws-sdk/client-sts'
import { sleep } from '../../../platform/clock.ts'
import { Refusal } from '../../../platform/errors.ts'
import { readResponse } from './response-limits.ts'
import { AwsFailure, failureOf } from './aws-failure.ts'
import { CONCURRENT_REQUESTS_MAX, RequestLimiter } from './request-limiter.ts'
import { type AwsTarget, targetName, type StaticCredentials } from './aws-target.ts'

const CONNECT_MS = 3000
const REQUEST_MS = 10_000
const FIRST_PAUSE_MS = 100
/** After throttling. */
const THROTTLE_PAUSE_MS = 500
const PAUSE_MAX_MS = 20_000

export type CredentialSource = StaticCredentials | (() => Promise<StaticCredentials & { readonly expiration?: Date }>)

export interface ClientSettings {
  readonly target: AwsTarget
  /** Absent: the credential sources of the SDK. */
  readonly credentials?: CredentialSource | undefined
  readonly attempts: number
  /** For this time an unknown access key is retried, because it is new. */
  readonly newForMs?: number
  /** Called directly before each request is sent; throws a Refusal if it must not be. */
  readonly beforeSend?: () => void
}

export interface CallOptions {
  readonly signal: AbortSignal
  /** Not idempotent: retried only after a refusal. */
  readonly isOnce?: boolean
  /** A temporary refusal, retried for at most `passingMs` after the first request. */
  readonly passes?: (failure: AwsFailure) => boolean
  readonly passingMs?: number
  /** Called for each failed attempt, also before a retry. */
  readonly onFailure?: (failure: AwsFailure) => void
}

interface SendOptions {
  readonly abortSignal: AbortSignal
}

/** A client of one service. */
export class AwsClient<C extends { destroy(): void }> {
  readonly #settings: ClientSettings
  readonly #service: string
  readonly #client: Promise<C>
  readonly #newUntilMs: number
  readonly #limiter = new RequestLimiter()
  #isClosed = false

  constructor(service: string, client: Promise<C>, settings: ClientSettings) {
    this.#service = service
    this.#client = client
    this.#settings = settings
    this.#newUntilMs = performance.now() + (settings.newForMs ?? 0)
    // Calls reject with it.
    client.catch(() => undefined)
  }

  /** Rejects with an AwsFailure, and with a Refusal of `beforeSend`. */
  async call<T>(send: (client: C, options: SendOptions) => Promise<T>, options: CallOptions): Promise<T> {
    const { signal } = options
    const client = await this.#client
    // Set by the first request, which may have to wait for the limiter.
    let startedAtMs: number | undefined
    const start = () => {
      startedAtMs ??= performance.now()
      return this.#sent(client, send, signal)
    }
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#limiter.run(start, isThrottled, signal)
      } catch (error) {
        if (error instanceof Refusal) throw error
        const failure = this.#failureOf(error)
        options.onFailure?.(failure)
        const passedMs = startedAtMs === undefined ? 0 : performance.now() - startedAtMs
        const isRetried = this.#isRetried(failure, attempt, { ...options, passedMs })
        if (signal.aborted || !isRetried) throw failure
        await sleep(pauseMs(failure, attempt), signal)
        if (signal.aborted) throw failure
      }
    }
  }

  #sent<T>(client: C, send: (client: C, options: SendOptions) => Promise<T>, signal: AbortSignal): Promise<T> {
    return send(client, { abortSignal: signal }).catch((error: unknown) => {
      if (error instanceof Refusal) throw error
      throw this.#failureOf(error)
    })
  }

  #failureOf(error: unknown): AwsFailure {
    return failureOf(error, targetName(this.#service, this.#settings.target))
  }

  #isRetried(failure: AwsFailure, attempt: number, options: CallOptions & { passedMs: number }): boolean {
    const { isOnce = false, passedMs, passes, passingMs = 0 } = options
    // A closed client was replaced, so its key is an old one.
    if (failure.isUnknownKey) return !this.#isClosed && performance.now() < this.#newUntilMs
    if (passes?.(failure)) return passedMs < passingMs
    if (attempt >= this.#settings.attempts) return false
    return failure.isPassing && !(isOnce && failure.isAmbiguous)
  }

  /** Requests in progress complete. */
  close(): void {
    this.#isClosed = true
    const timer = setTimeout(() => void this.#client.then((client) => client.destroy()), 2 * REQUEST_MS)
    timer.unref()
  }
}

function isThrottled(error: unknown): boolean {
  return error instanceof AwsFailure && error.isThrottle
}

/** Exponential backoff, half of it random, so that many callers do not retry at the same time. */
function pauseMs({ isThrottle }: AwsFailure, attempt: number): number {
  const maxMs = Math.min(
    PAUSE_MAX_MS,
    (isThrottle ? THROTTLE_PAUSE_MS : FIRST_PAUSE_MS) * 2 ** Math.min(attempt - 1, 10),
  )
  return maxMs / 2 + randomInt(Math.ceil(maxMs / 2))
}

function sdkOptions({ credentials, target }: ClientSettings) {
  return {
    ...target,
    ...(credentials && { credentials }),
    // This file retries.
    maxAttempts: 1,
    requestHandler: {
      connectionTimeout: CONNECT_MS,
      requestTimeout: REQUEST_MS,
      throwOnRequestTimeout: true,
      httpAgent: { keepAlive: true, maxSockets: CONCURRENT_REQUESTS_MAX },
      httpsAgent: { keepAlive: true, maxSockets: CONCURRENT_REQUESTS_MAX },
    },
  }
}

async function loadIam(settings: ClientSettings): Promise<IAM> {
  const { IAM: Client } = await import('@aws-sdk/client-iam')
  const client = new Client(sdkOptions(settings))
  client.middlewareStack.add(boundedBy(settings.beforeSend), BOUNDED)
  return client
}

async function loadSts(settings: ClientSettings): Promise<STS> {
  const { STS: Client } = await import('@aws-sdk/client-sts')
  const client = new Client(sdkOptions(settings))
  client.middlewareStack.add(boundedBy(settings.beforeSend), BOUNDED)
  return client
}

/** Next to the handler: before other middleware reads the body. */
const BOUNDED = { step: 'deserialize', priority: 'low', name: 'bounded' } as const

/** Middleware that calls `beforeSend`, and replaces the body's stream by the complete body, which `readResponse` limits. */
function boundedBy(beforeSend: ClientSettings['beforeSend']) {
  return <Args, Out extends { readonly response: unknown }>(next: (args: Args) => Promise<Out>) =>
    async (args: Args): Promise<Out> => {
      beforeSend?.()
      const out = await next(args)
      const { response } = out
      if (hasBody(response) && isStream(response.body)) response.body = await readResponse(response.body, REQUEST_MS)
      return out
    }
}

function hasBody(response: unknown): response is { body: unknown } {
  return typeof response === 'object' && response !== null && 'body' in response
}

function isStream(body: unknown): body is AsyncIterable<Uint8Array> {
  return typeof body === 'object' && body !== null && Symbol.asyncIterator in body
}

export type IamClient = AwsClient<IAM>
export type StsClient = AwsClient<STS>

export function iamClient(settings: ClientSettings): IamClient {
  return new AwsClient('IAM', loadIam(settings), settings)
}

export function stsClient(settings: ClientSettings): StsClient {
  return new AwsClient('STS', loadSts(settings), settings)
}
