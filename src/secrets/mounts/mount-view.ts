/**
 * What the engine at a mount reaches, with a door that can be shut, and a count of who is inside. A mount that is disabled
 * lets end what is under way; then its door is shut, so that whoever still holds it, whatever it waits for, can write
 * nothing behind the removal.
 */
import type { Batch, History, View } from '../../barrier/view.ts'
import { type Chronicle, Rejection, type Storage } from '../../engines/engine.ts'

type ListOptions = Parameters<Storage['list']>[1]

export class MountView implements Storage, Chronicle {
  readonly #view: View
  readonly #commits = new Set<Promise<unknown>>()
  readonly #listeners = new Set<() => void>()
  #isLeaving = false
  #isShut = false

  constructor(view: View) {
    this.#view = view
  }

  get(path: string): Buffer | undefined {
    // What is left behind the door is on its way out, and would be told as all that there is.
    if (this.#isShut) throw new Rejection(404, 'this mount has been disabled')
    return this.#view.get(path)
  }

  pending(path: string): Buffer | undefined {
    return this.#view.pending(path)
  }

  list(prefix?: string, options?: ListOptions): string[] {
    return this.#view.list(prefix, options)
  }

  async commit(batch: Batch): Promise<number> {
    if (this.#isShut) throw new Rejection(404, 'this mount has been disabled')
    const commit = this.#view.commit(batch)
    this.#commits.add(commit)
    try {
      return await commit
    } finally {
      this.#commits.delete(commit)
      for (const listener of this.#listeners) listener()
    }
  }

  history(after: number, limit: number, isWanted: (path: string) => boolean): History {
    if (this.#isLeaving) throw new Rejection(404, 'this mount has been disabled')
    return this.#view.history(after, limit, isWanted)
  }

  /** Calls back when something was committed here; returns what ends it. */
  onCommit(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Nobody is told any more of what happens here: who waits for that ends, and keeps nobody else waiting. */
  leave(): void {
    this.#isLeaving = true
    for (const listener of this.#listeners) listener()
  }

  /** Nothing can be committed any more; resolves when what had been is durable, or has failed. */
  async shut(): Promise<void> {
    this.#isShut = true
    await Promise.allSettled(this.#commits)
  }
}

/** How many requests are at a mount. */
export class Traffic {
  #underWay = 0
  readonly #waiting = new Set<() => void>()

  /** Counts one in; what it returns counts it out. */
  enter(): () => void {
    this.#underWay++
    return () => {
      this.#underWay--
      if (this.#underWay === 0) for (const resume of this.#waiting) resume()
    }
  }

  /** Resolves with true when nobody is there, with false when somebody still is after this time. */
  async idle(timeoutMs: number): Promise<boolean> {
    if (this.#underWay === 0) return true
    return new Promise((resolve) => {
      const done = (isIdle: boolean) => {
        clearTimeout(timer)
        this.#waiting.delete(resume)
        resolve(isIdle)
      }
      const resume = () => done(true)
      const timer = setTimeout(() => done(false), timeoutMs)
      this.#waiting.add(resume)
    })
  }
}
