/** Retries of a step until it succeeds, while the program continues. */
import { sleep } from '../platform/clock.ts'
import { messageOf } from '../platform/errors.ts'

const PAUSE_MIN_MS = 200
const PAUSE_MAX_MS = 10_000
/** After a refusal: the permission, role or secret may be restored. */
const PAUSE_REFUSED_MS = 30_000
/** Random part of a pause in both directions, so that many hosts do not retry at the same moment. */
const JITTER = 1 / 4
/** Node fires a longer timer at once. */
const TIMER_MS_MAX = 2 ** 31 - 1

/** Part of the lifetime after which a token is renewed. */
export const RENEW_AFTER_PART = 2 / 3
/** A renewal to less than this part of the first lifetime means that the maximum TTL is near. */
export const RENEWED_PART_MIN = 1 / 2

export interface RetryOptions {
  /** Aborting it ends the attempts. */
  readonly signal: AbortSignal
  /** Message for the operator; never contains a secret. */
  readonly warn: (message: string) => void
  /** Subject of the warnings. */
  readonly what: string
  /** Attempts end at this monotonic time and at a refusal; absent: they never end. */
  readonly untilMs?: number
  /** State until the step succeeds, for the warnings. */
  readonly meanwhile?: string
  /** Resolves when another attempt after a refusal may succeed, or its signal aborts. */
  readonly another?: (signal: AbortSignal) => Promise<void>
  /** Called after each attempt, with the error of a failed one. */
  readonly onAttempt?: (error: unknown) => void
}

/** Whether the same attempt would fail again: the error has `isFinal`. */
export function isFinal(error: unknown): boolean {
  return error instanceof Error && 'isFinal' in error && error.isFinal === true
}

/** Resolves to undefined when the signal aborts. Rejects with the last error when attempts end. */
export async function retryUntilSuccess<T>(step: () => Promise<T>, options: RetryOptions): Promise<T | undefined> {
  const { meanwhile, onAttempt, signal, untilMs, warn, what } = options
  let lastReason = ''
  for (let pauseMs = PAUSE_MIN_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, PAUSE_MAX_MS)) {
    try {
      const result = await step()
      onAttempt?.(undefined)
      if (lastReason !== '') warn(`${what}: resumed`)
      return result
    } catch (error) {
      if (signal.aborted) return undefined
      onAttempt?.(error)
      const isRefused = isFinal(error)
      if (untilMs !== undefined && (isRefused || performance.now() + pauseMs > untilMs)) throw error
      const reason = messageOf(error)
      if (reason !== lastReason) warn(`${what}: ${reason}; ${meanwhile === undefined ? '' : `${meanwhile}, `}retrying`)
      lastReason = reason
      await untilNext(isRefused ? PAUSE_REFUSED_MS : pauseMs, isRefused ? options.another : undefined, signal)
    }
  }
  return undefined
}

async function untilNext(ms: number, another: RetryOptions['another'], signal: AbortSignal): Promise<void> {
  const over = new AbortController()
  const ended = AbortSignal.any([signal, over.signal])
  try {
    await Promise.race([pause(ms * randomBetween(1 - JITTER, 1 + JITTER), ended), ...(another ? [another(ended)] : [])])
  } finally {
    over.abort()
  }
}

export function randomBetween(least: number, most: number): number {
  return least + (most - least) * Math.random()
}

/** As `sleep`, with a bounded time. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return sleep(Math.min(ms, TIMER_MS_MAX), signal)
}
