/**
 * What is left to be undone in AWS, and when each of it is tried next. Only in memory: what there is to undo is stored, and
 * after a start all of it is due.
 */
import { messageOf } from '../../../platform/errors.ts'
import { AwsFailure } from '../aws/aws-failure.ts'
import { isSealed } from '../aws/entries.ts'

const FIRST_PAUSE_MS = 1000
const PAUSE_MAX_MS = 15_000

interface Attempts {
  /** No request has worked on it since, as far as this process knows. */
  readonly sinceMs: number
  count: number
  nextAtMs: number
  error: string
}

export class Backlog {
  /** What requests work on. */
  readonly #active = new Set<string>()
  readonly #attempts = new Map<string, Attempts>()

  begin(id: string): void {
    this.#active.add(id)
  }

  /** The request is over: it has cleared what it noted, or that is to be undone. */
  end(id: string): void {
    this.#active.delete(id)
  }

  isActive(id: string): boolean {
    return this.#active.has(id)
  }

  /** Which of all there are is to be tried now; what is there no more is forgotten. */
  due(ids: readonly string[], nowMs: number, isUrgent: boolean): string[] {
    if (this.#attempts.size > 0) {
      const there = new Set(ids)
      for (const id of this.#attempts.keys()) if (!there.has(id)) this.#attempts.delete(id)
    }
    return ids.filter((id) => {
      if (this.#active.has(id)) return false
      const attempts = this.#attempts.get(id) ?? { sinceMs: nowMs, count: 0, nextAtMs: 0, error: '' }
      this.#attempts.set(id, attempts)
      return isUrgent || attempts.nextAtMs <= nowMs
    })
  }

  /**
   * Tries `undo`, which is told for how long nothing else has worked on it and resolves with whether it is done. Resolves
   * with that; `onFirst` gets the first failure. An entry that cannot be read fails its own attempt only. Rejects when sealed.
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
      // The text of a fault is for the log; callers are shown what this keeps.
      attempts.error = error instanceof AwsFailure ? error.text : 'an entry cannot be read: see the log of the server'
      if (attempts.count === 1) onFirst(error instanceof AwsFailure ? error.text : messageOf(error))
      return false
    }
  }

  /** What is wrong with what is left. */
  errors(): string[] {
    return [...this.#attempts.values()].flatMap(({ error }) => (error === '' ? [] : [error]))
  }
}
