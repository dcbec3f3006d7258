/**
 * Tables with short-lived entries, such as requests and commits in progress.
 *
 * V8 replaces the table of a Map after a number of insertions and deletions, and the old table refers to the new one. Once one
 * table is in the old generation, as after each full collection, all tables that replaced it survive every collection of the
 * young generation, and so does each value that was in them. A WeakMap in the old generation keeps the values of young keys in
 * the same way. Until the next full collection this garbage is copied, which takes a fifth of the time of small requests.
 *
 * So these tables copy their entries to a new Map before the old one is promoted to the old generation.
 */

/** Minimum number of deletions before a Map is replaced; a young generation sees more. */
const DELETIONS_MIN = 64
/** Number of values after which a WeakMap is replaced. */
const NOTED_MAX = 256

/** A Map with short-lived entries. */
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
 * Values that belong to objects and do not outlive them. `keep` stores a value for the lifetime of its object. `note` stores one
 * that is needed soon or never: it is evicted after a few hundred further notes.
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
