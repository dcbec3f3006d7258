/** A request that is sent until it is answered, because the command that needs the answer goes on meanwhile. */
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../kit/errors.ts'
import { CommandError } from '../command-shape.ts'
import { RefusedByAgent } from '../http-client.ts'

const PAUSE_FIRST_MS = 200
const PAUSE_MOST_MS = 10_000
/** After an answer that says no: a right or a secret may come back. */
const PAUSE_REFUSED_MS = 30_000
/** A timer that is longer fires at once. */
const TIMER_MS_MAX = 2 ** 31 - 1

/** The part of a life after which it is renewed. */
export const RENEWED_AFTER = 2 / 3
/** A renewal that gives less than this part of the first term says that the end is near. */
export const TERM_LEFT_MIN = 1 / 2

/** Something that the same step would find again: nothing is there, or a file cannot be used. */
export class FinalFault extends CommandError {}

export interface Persistence {
  /** Aborting it ends the attempts. */
  readonly signal: AbortSignal
  /** Tells the operator; never holds a secret. */
  readonly warn: (message: string) => void
  /** What a warning is about. */
  readonly what: string
  /** Attempts end then, and so they do with an answer that says no; absent: they never end. */
  readonly untilMs?: number
  /** Resolves when an answer that said no may be another one now. */
  readonly another?: () => Promise<void>
}

/** True for an answer that the same request would be given again. */
export function isFinal(error: unknown): boolean {
  return error instanceof FinalFault || (error instanceof RefusedByAgent && error.isFinal)
}

/** Undefined when the signal aborts. Throws what the last attempt threw, where attempts end. */
export async function persistently<T>(step: () => Promise<T>, options: Persistence): Promise<T | undefined> {
  const { signal, untilMs, warn, what } = options
  let told = ''
  for (let pauseMs = PAUSE_FIRST_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, PAUSE_MOST_MS)) {
    try {
      const result = await step()
      if (told !== '') warn(`${what}: resumed`)
      return result
    } catch (error) {
      if (signal.aborted) return undefined
      const isRefused = isFinal(error)
      if (untilMs !== undefined && (isRefused || performance.now() + pauseMs > untilMs)) throw error
      const reason = messageOf(error)
      if (reason !== told) warn(`${what}: ${reason}; ${untilMs === undefined ? 'the last values stay, ' : ''}trying on`)
      told = reason
      const waited = pause(isRefused ? PAUSE_REFUSED_MS : pauseMs, signal)
      await (isRefused && options.another ? Promise.race([waited, options.another()]) : waited)
    }
  }
  return undefined
}

/** Ends early, without an error, when the signal aborts. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(Math.min(ms, TIMER_MS_MAX), undefined, { signal }).catch(() => undefined)
}
