/**
 * Commits of one turn of the event loop, made one. What cannot be committed (its mount was sealed meanwhile, a path is damaged) must
 * keep no other: where a commit of several fails, each is attempted by itself.
 */
import { type CommitPart, Storage } from '../../storage/barrier/storage.ts'

/** Of one commit: a few milliseconds of the writer's time, and of the event loop's. */
const ITEMS_MAX = 128

interface Waiting<T> {
  readonly item: T
  readonly landed: (group: readonly T[]) => void
  readonly failed: (error: unknown) => void
}

export class GroupedCommits<T> {
  readonly #partOf: (item: T) => CommitPart
  #waiting: Waiting<T>[] = []

  constructor(partOf: (item: T) => CommitPart) {
    this.#partOf = partOf
  }

  /** Resolves, once that of this item is durable, with all items of the same commit; rejects where it is not. */
  add(item: T): Promise<readonly T[]> {
    return new Promise((landed, failed) => {
      if (this.#waiting.push({ item, landed, failed }) === 1) setImmediate(() => this.#writeAll())
    })
  }

  #writeAll(): void {
    const waiting = this.#waiting
    this.#waiting = []
    while (waiting.length > 0) void this.#write(waiting.splice(0, ITEMS_MAX))
  }

  /** Never rejects. */
  async #write(group: readonly Waiting<T>[]): Promise<void> {
    const items = group.map(({ item }) => item)
    try {
      await Storage.commitAll(items.map(this.#partOf))
    } catch (error) {
      if (group.length === 1) for (const { failed } of group) failed(error)
      else for (const each of group) await this.#write([each])
      return
    }
    for (const { landed } of group) landed(items)
  }
}
