/**
 * Round-robin queue: FIFO within a key, round-robin between keys, so a key with many items does not delay the others. With one key
 * it is a FIFO queue. `add`, `shift` and `delete` take constant time; `longest` takes time in proportion to the number of keys.
 */
export class RoundRobinQueue<Item> {
  /** In the order in which the keys are served; no set is empty. */
  readonly #itemsByKey = new Map<string, Set<Item>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  sizeOf(key: string): number {
    return this.#itemsByKey.get(key)?.size ?? 0
  }

  /** `item` must not be queued already. */
  add(key: string, item: Item): void {
    const items = this.#itemsByKey.get(key)
    if (items) items.add(item)
    else this.#itemsByKey.set(key, new Set([item]))
    this.#size++
  }

  /** Removes and returns the oldest item of the next key. */
  shift(): Item | undefined {
    const [next] = this.#itemsByKey
    if (!next) return undefined
    const [key, items] = next
    const [item] = items
    this.#itemsByKey.delete(key)
    if (item !== undefined) items.delete(item)
    if (items.size > 0) this.#itemsByKey.set(key, items)
    this.#size--
    return item
  }

  /** False where the item is not queued under this key. */
  delete(key: string, item: Item): boolean {
    const items = this.#itemsByKey.get(key)
    if (!items?.delete(item)) return false
    if (items.size === 0) this.#itemsByKey.delete(key)
    this.#size--
    return true
  }

  /** The key with the most items and its newest item. */
  longest(): { readonly key: string; readonly size: number; readonly newest: Item } | undefined {
    let found: { key: string; items: Set<Item> } | undefined
    for (const [key, items] of this.#itemsByKey) if (!found || items.size > found.items.size) found = { key, items }
    const newest = found && [...found.items].at(-1)
    return found && newest !== undefined ? { key: found.key, size: found.items.size, newest } : undefined
  }
}
