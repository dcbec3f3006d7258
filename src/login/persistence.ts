/** A step that is tried again until it succeeds, because the program that needs it goes on meanwhile. */
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../platform/errors.ts'

const PAUSE_FIRST_MS = 200
const PAUSE_MOST_MS = 10_000
/** After an answer that says no: a right, a role or a secret may come back. */
const PAUSE_REFUSED_MS = 30_000
/** Pauses differ by up to this part in both directions, so that many hosts do not ask a server in the same moment. */
const JITTER = 1 / 4
/** A timer that is longer fires at once. */
const TIMER_MS_MAX = 2 ** 31 - 1

/** The part of a life after which it is renewed. */
export const RENEWED_AFTER = 2 / 3
/** A renewal that gives less than this part of the first term says that the end is near. */
export const TERM_LEFT_MIN = 1 / 2

export interface Persistence {
  /** Aborting it ends the attempts. */
  readonly signal: AbortSignal
  /** Tells the operator; never holds a secret. */
  readonly warn: (message: string) => void
  /** What a warning is about. */
  readonly what: string
  /** Attempts end then (monotonic clock), and at once with an answer that says no; absent: they never end. */
  readonly untilMs?: number
  /** What a warning says of the time until the step succeeds; absent: nothing. */
  readonly meanwhile?: string
  /** Resolves when an answer that said no may be another one now, and when its signal aborts. */
  readonly another?: (signal: AbortSignal) => Promise<void>
  /** Called after each attempt, with its error where it failed. */
  readonly onAttempt?: (error: unknown) => void
}

/** True for an error that the same step would meet again: it has the property `isFinal`. */
export function isFinal(error: unknown): boolean {
  return error instanceof Error && 'isFinal' in error && error.isFinal === true
}

/** Undefined when the signal aborts. Throws what the last attempt threw, where attempts end. */
export async function persistently<T>(step: () => Promise<T>, options: Persistence): Promise<T | undefined> {
  const { meanwhile, onAttempt, signal, untilMs, warn, what } = options
  let told = ''
  for (let pauseMs = PAUSE_FIRST_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, PAUSE_MOST_MS)) {
    try {
      const result = await step()
      onAttempt?.(undefined)
      if (told !== '') warn(`${what}: resumed`)
      return result
    } catch (error) {
      if (signal.aborted) return undefined
      onAttempt?.(error)
      const isRefused = isFinal(error)
      if (untilMs !== undefined && (isRefused || performance.now() + pauseMs > untilMs)) throw error
      const reason = messageOf(error)
      if (reason !== told) warn(`${what}: ${reason}; ${meanwhile === undefined ? '' : `${meanwhile}, `}trying again`)
      told = reason
      await untilNext(isRefused ? PAUSE_REFUSED_MS : pauseMs, isRefused ? options.another : undefined, signal)
    }
  }
  return undefined
}

async function untilNext(ms: number, another: Persistence['another'], signal: AbortSignal): Promise<void> {
  const over = new AbortController()
  const ended = AbortSignal.any([signal, over.signal])
  try {
    await Promise.race([pause(ms * between(1 - JITTER, 1 + JITTER), ended), ...(another ? [another(ended)] : [])])
  } finally {
    over.abort()
  }
}

/** A random number, to spread what many hosts do over time. */
export function between(least: number, most: number): number {
  return least + (most - least) * Math.random()
}

/** Ends early, without an error, when the signal aborts. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(Math.min(ms, TIMER_MS_MAX), undefined, { signal }).catch(() => undefined)
}
