/**
 * The port to AWS: the only file that loads its SDK, when the first call is made.
 *
 * A client sends a request as often as config/root says (`max_retries`), with growing pauses. What is refused for good is
 * told at once. What may have taken effect although no answer came is sent again only where a second time does no harm:
 * `isOnce` says where it does, and the caller looks at what is there.
 */
import { randomInt } from 'node:crypto'
import { setTimeout as later } from 'node:timers/promises'
import type { IAM } from '@aws-sdk/client-iam'
import type { STS } from '@aws-sdk/client-sts'
import { readAnswer } from './aws-answer.ts'
import { AwsFailure, failureOf } from './aws-failure.ts'
import { AT_ONCE_MAX, AwsPace } from './aws-pace.ts'
import { type AwsTarget, shownTarget, type StaticCredentials } from './aws-target.ts'

const CONNECT_MS = 3000
const REQUEST_MS = 10_000
const FIRST_PAUSE_MS = 100
/** AWS says that it is asked too often. */
const THROTTLE_PAUSE_MS = 500
const PAUSE_MAX_MS = 20_000

export type CredentialSource = StaticCredentials | (() => Promise<StaticCredentials & { readonly expiration?: Date }>)

export interface ClientSettings {
  readonly target: AwsTarget
  /** Absent: the sources of the SDK. */
  readonly credentials?: CredentialSource | undefined
  readonly attempts: number
  /** For so long from now a key that AWS does not know is tried again: it is new. */
  readonly newForMs?: number
}

export interface CallOptions {
  readonly signal: AbortSignal
  /** Sent a second time only after a refusal. */
  readonly isOnce?: boolean
  /** A refusal that passes, for at most `passingMs` from when AWS is first asked. */
  readonly passes?: (failure: AwsFailure) => boolean
  readonly passingMs?: number
  /** Called for each attempt that fails, also for those that are followed by another one. */
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
  readonly #pace = new AwsPace()
  #isClosed = false

  constructor(service: string, client: Promise<C>, settings: ClientSettings) {
    this.#service = service
    this.#client = client
    this.#settings = settings
    this.#newUntilMs = performance.now() + (settings.newForMs ?? 0)
    // Who calls is told.
    client.catch(() => undefined)
  }

  /** Resolves with the answer. Rejects with an AwsFailure. */
  async call<T>(send: (client: C, options: SendOptions) => Promise<T>, options: CallOptions): Promise<T> {
    const { signal } = options
    const client = await this.#client
    // Not from here: AWS may be asked later, when others wait.
    let beganAtMs: number | undefined
    const begin = () => {
      beganAtMs ??= performance.now()
      return this.#sent(client, send, signal)
    }
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#pace.run(begin, isOneTooMany, signal)
      } catch (error) {
        const failure = this.#failureOf(error)
        options.onFailure?.(failure)
        const passedMs = beganAtMs === undefined ? 0 : performance.now() - beganAtMs
        const isWorth = this.#isWorth(failure, attempt, { ...options, passedMs })
        if (signal.aborted || !isWorth) throw failure
        await later(pauseMs(failure, attempt), undefined, { signal }).catch(() => undefined)
        if (signal.aborted) throw failure
      }
    }
  }

  #sent<T>(client: C, send: (client: C, options: SendOptions) => Promise<T>, signal: AbortSignal): Promise<T> {
    return send(client, { abortSignal: signal }).catch((error: unknown) => {
      throw this.#failureOf(error)
    })
  }

  #failureOf(error: unknown): AwsFailure {
    return failureOf(error, shownTarget(this.#service, this.#settings.target))
  }

  #isWorth(failure: AwsFailure, attempt: number, options: CallOptions & { passedMs: number }): boolean {
    const { isOnce = false, passedMs, passes, passingMs = 0 } = options
    // Of a client that another one has taken the place of, the key is an old one.
    if (failure.isUnknownKey) return !this.#isClosed && performance.now() < this.#newUntilMs
    if (passes?.(failure)) return passedMs < passingMs
    if (attempt >= this.#settings.attempts) return false
    return failure.isPassing && !(isOnce && failure.isAmbiguous)
  }

  /** What is under way ends by itself. */
  close(): void {
    this.#isClosed = true
    const timer = setTimeout(() => void this.#client.then((client) => client.destroy()), 2 * REQUEST_MS)
    timer.unref()
  }
}

function isOneTooMany(error: unknown): boolean {
  return error instanceof AwsFailure && error.isThrottle
}

/** Half of it is chance, so that many callers do not come again at once. */
function pauseMs({ isThrottle }: AwsFailure, attempt: number): number {
  const most = Math.min(
    PAUSE_MAX_MS,
    (isThrottle ? THROTTLE_PAUSE_MS : FIRST_PAUSE_MS) * 2 ** Math.min(attempt - 1, 10),
  )
  return most / 2 + randomInt(Math.ceil(most / 2))
}

function sdkOptions({ credentials, target }: ClientSettings) {
  return {
    ...target,
    ...(credentials && { credentials }),
    // Sent again by this file.
    maxAttempts: 1,
    requestHandler: {
      connectionTimeout: CONNECT_MS,
      requestTimeout: REQUEST_MS,
      throwOnRequestTimeout: true,
      httpAgent: { keepAlive: true, maxSockets: AT_ONCE_MAX },
      httpsAgent: { keepAlive: true, maxSockets: AT_ONCE_MAX },
    },
  }
}

async function loadIam(settings: ClientSettings): Promise<IAM> {
  const { IAM: Client } = await import('@aws-sdk/client-iam')
  const client = new Client(sdkOptions(settings))
  client.middlewareStack.add(bounded, BOUNDED)
  return client
}

async function loadSts(settings: ClientSettings): Promise<STS> {
  const { STS: Client } = await import('@aws-sdk/client-sts')
  const client = new Client(sdkOptions(settings))
  client.middlewareStack.add(bounded, BOUNDED)
  return client
}

/** Next to the handler: before anything of the SDK looks at the body. */
const BOUNDED = { step: 'deserialize', priority: 'low', name: 'bounded' } as const

/** Gives the SDK the whole body in place of its stream. */
function bounded<Args, Out extends { readonly response: unknown }>(next: (args: Args) => Promise<Out>) {
  return async (args: Args): Promise<Out> => {
    const out = await next(args)
    const { response } = out
    if (hasBody(response) && isStream(response.body)) response.body = await readAnswer(response.body, REQUEST_MS)
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
