/**
 * Maps whose entries exist only for a short time, such as requests and commits in progress.
 *
 * V8 allocates a new table for a Map after every few insertions and deletions, and the old table refers to the new one. Once a table
 * is in the old generation, as after each full collection, all later tables survive every collection of the young generation, and so
 * do the values that were in them. A WeakMap in the old generation keeps the values of young keys in the same way. Until the next
 * full collection this garbage is copied, which costs a fifth of the time of small requests.
 *
 * So a Map is replaced here by a new one before it is old. Its content does not change.
 */

/** Deletions after which a Map is replaced at the earliest; fewer than happen between two collections of the young generation. */
const DELETIONS_MIN = 64
/** Values of a WeakMap before it is replaced. */
const NOTED_MAX = 256

/** A Map with short-lived entries. */
export class TransientMap<K, V> {
  #map = new Map<K, V>()
  #deletions = 0

  get size(): number {
    return this.#map.size
  }

  get(key: K): V | undefined {
    return this.#map.get(key)
  }

  set(key: K, value: V): void {
    this.#map.set(key, value)
  }

  delete(key: K): void {
    if (!this.#map.delete(key) || ++this.#deletions < Math.max(DELETIONS_MIN, this.#map.size * 2)) return
    this.#deletions = 0
    this.#map = new Map(this.#map)
  }

  /** In insertion order. */
  keys(): IterableIterator<K> {
    return this.#map.keys()
  }

  values(): IterableIterator<V> {
    return this.#map.values()
  }

  clear(): void {
    this.#map = new Map()
    this.#deletions = 0
  }
}

/**
 * Values for objects as long as these exist: one WeakMap for values that are kept, and two for values that were noted last, which are
 * likely to be read soon or never. A noted value is dropped after some hundred later ones.
 */
export class WeakCache<K extends object, V> {
  readonly #kept = new WeakMap<K, V>()
  #noted = new WeakMap<K, V>()
  #notedBefore = new WeakMap<K, V>()
  #count = 0

  get(key: K): V | undefined {
    return this.#noted.get(key) ?? this.#notedBefore.get(key) ?? this.#kept.get(key)
  }

  keep(key: K, value: V): void {
    this.#kept.set(key, value)
  }

  note(key: K, value: V): void {
    if (++this.#count > NOTED_MAX) {
      this.#notedBefore = this.#noted
      this.#noted = new WeakMap()
      this.#count = 1
    }
    this.#noted.set(key, value)
  }
}
