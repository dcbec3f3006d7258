/**
 * Calls under way by their names.
 *
 * Not a Map: of one whose entries come and go all the time, V8 makes a new table every few entries, and the old table refers to
 * the new one. Once one of them is in the old generation, as after each full collection, all tables behind it survive every
 * collection of the young generation, and so does each call that stood in them: collecting then takes a fifth of the
 * time of small calls.
 */
/** A power of two. */
const BUCKETS = 256

interface Entry<T> {
  readonly name: string
  readonly call: T
}

export class CallTable<T> {
  readonly #buckets: Entry<T>[][] = Array.from({ length: BUCKETS }, () => [])
  #size = 0

  get size(): number {
    return this.#size
  }

  get(name: string): T | undefined {
    for (const entry of this.#bucketOf(name)) if (entry.name === name) return entry.call
    return undefined
  }

  /** The name must not be in use. */
  add(name: string, call: T): void {
    this.#bucketOf(name).push({ name, call })
    this.#size++
  }

  delete(name: string): void {
    const bucket = this.#bucketOf(name)
    const at = bucket.findIndex((entry) => entry.name === name)
    const last = at < 0 ? undefined : bucket.pop()
    if (!last) return
    if (at < bucket.length) bucket[at] = last
    this.#size--
  }

  /** All at this moment. */
  values(): T[] {
    return this.#buckets.flatMap((bucket) => bucket.map(({ call }) => call))
  }

  clear(): void {
    for (const bucket of this.#buckets) bucket.length = 0
    this.#size = 0
  }

  /** Names end in a count: their last two characters spread best. (Those of a name with one are no number: the first bucket.) */
  #bucketOf(name: string): Entry<T>[] {
    const at = (name.charCodeAt(name.length - 1) + 7 * name.charCodeAt(name.length - 2)) & (BUCKETS - 1)
    return this.#buckets[at] ?? []
  }
}
