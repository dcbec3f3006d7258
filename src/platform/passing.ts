/**
 * Tables for what comes and goes all the time, such as requests and commits under way.
 *
 * V8 makes a new table for a Map every few entries that come and go, and the old table refers to the new one. Once one of
 * them is in the old generation, as after each full collection, all tables behind it survive every collection of the young
 * generation, and so does each value that stood in them. A WeakMap that has become old keeps the values of young keys in the
 * same way. Until the next full collection that is garbage which is copied, and a fifth of the time of small requests.
 *
 * So a Map is given up here for a fresh one before it is old. What is in it is the same all the while.
 */

/** Deletions after which a Map is given up at the earliest; fewer than a young generation sees. */
const DELETIONS_MIN = 64
/** Values of a WeakMap that is given up. */
const NOTED_MAX = 256

/** A Map whose entries come and go. */
export class PassingMap<K, V> {
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

  /** In the order in which they came. */
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
 * What is known of objects, for as long as these are there: a WeakMap for what is kept, and two for what was noted last, which is
 * likely to be asked for soon or not at all. What was noted some hundred notes ago is forgotten.
 */
export class KnownOf<K extends object, V> {
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
