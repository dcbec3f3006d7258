/**
 * Retry times of intents that are to be rolled back. Only in memory: the intents are stored, and after a restart all of them are
 * due.
 */
import { messageOf } from '../../../platform/errors.ts'
import { AwsFailure } from '../aws/aws-failure.ts'
import { isSealed } from '../aws/entries.ts'

const FIRST_PAUSE_MS = 1000
const PAUSE_MAX_MS = 15_000

interface RetryState {
  /** Since then no request of this process has used it. */
  readonly sinceMs: number
  count: number
  nextAtMs: number
  error: string
}

export class RetryBacklog {
  /** Used by requests in progress. */
  readonly #active = new Set<string>()
  readonly #attempts = new Map<string, RetryState>()

  begin(id: string): void {
    this.#active.add(id)
  }

  /** The request has ended: it deleted the intent, or the intent is to be rolled back. */
  end(id: string): void {
    this.#active.delete(id)
  }

  isActive(id: string): boolean {
    return this.#active.has(id)
  }

  /** The IDs to attempt now. Forgets IDs that no longer exist. */
  due(ids: readonly string[], nowMs: number, isUrgent: boolean): string[] {
    if (this.#attempts.size > 0) {
      const existing = new Set(ids)
      for (const id of this.#attempts.keys()) if (!existing.has(id)) this.#attempts.delete(id)
    }
    return ids.filter((id) => {
      if (this.#active.has(id)) return false
      const attempts = this.#attempts.get(id) ?? { sinceMs: nowMs, count: 0, nextAtMs: 0, error: '' }
      this.#attempts.set(id, attempts)
      return isUrgent || attempts.nextAtMs <= nowMs
    })
  }

  /**
   * Attempts `undo`, which gets the time since the last use and resolves to true once it is complete. Resolves to the same value,
   * and to false after a failure. `onFirst` gets the first failure. Rejects once the core is sealed.
   */
  async attempt(
    id: string,
    nowMs: number,
    undo: (quietMs: number) => Promise<boolean>,
    onFirst: (error: string) => void,
  ): Promise<boolean> {
    const attempts = this.#attempts.get(id)
    if (!attempts) return false
    attempts.count++
    attempts.nextAtMs = nowMs + Math.min(PAUSE_MAX_MS, FIRST_PAUSE_MS * 2 ** Math.min(attempts.count - 1, 10))
    attempts.error = ''
    try {
      return await undo(nowMs - attempts.sinceMs)
    } catch (error) {
      if (isSealed(error)) throw error
      // The message of a fault is only for the log. This text is for callers.
      attempts.error = error instanceof AwsFailure ? error.text : 'a record cannot be read: see the log of the server'
      if (attempts.count === 1) onFirst(error instanceof AwsFailure ? error.text : messageOf(error))
      return false
    }
  }

  /** Errors of the last attempts. */
  errors(): string[] {
    return [...this.#attempts.values()].flatMap(({ error }) => (error === '' ? [] : [error]))
  }
}
