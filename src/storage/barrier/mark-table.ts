/**
 * A hash table from IDs to marks, both of 64 random bits, with 16 bytes per slot and a load factor of at most 0.75: about a tenth of the
 * memory of a Map with string keys. Open addressing with linear probing and deletion without tombstones.
 */

/** 64 bits as two unsigned 32-bit numbers. */
export interface EntryMark {
  readonly hi: number
  readonly lo: number
}

const WORDS = 4
const SLOTS_MIN = 8
/** Maximum load factor. */
const LOAD_MAX = 0.75
const MARK_BYTES = WORDS * 4

export class MarkTable {
  /** ID and mark, four words per slot; the first word of a free slot is 0. */
  #words: Uint32Array<ArrayBuffer>
  #mask: number
  size = 0

  constructor(sizeExpected = 0) {
    let slots = SLOTS_MIN
    while (slots * LOAD_MAX < sizeExpected) slots *= 2
    this.#words = new Uint32Array(slots * WORDS)
    this.#mask = slots - 1
  }

  get({ hi, lo }: EntryMark): EntryMark | undefined {
    const at = this.#find(hi, lo)
    const words = this.#words
    return words[at] === 0 ? undefined : { hi: words[at + 2] ?? 0, lo: words[at + 3] ?? 0 }
  }

  /** `id.hi` must not be 0. */
  set(id: EntryMark, mark: EntryMark): void {
    let at = this.#find(id.hi, id.lo)
    if (this.#words[at] === 0) {
      if (++this.size > (this.#mask + 1) * LOAD_MAX) {
        this.#grow()
        at = this.#find(id.hi, id.lo)
      }
      this.#words[at] = id.hi
      this.#words[at + 1] = id.lo
    }
    this.#words[at + 2] = mark.hi
    this.#words[at + 3] = mark.lo
  }

  delete({ hi, lo }: EntryMark): void {
    const words = this.#words
    let free = this.#find(hi, lo)
    if (words[free] === 0) return
    this.size--
    // Backward shift: moves later entries of the same probe sequence up.
    for (let at = this.#next(free); words[at] !== 0; at = this.#next(at)) {
      const home = this.#home(words[at + 1] ?? 0)
      const isBehind = free <= at ? home <= free || home > at : home <= free && home > at
      if (!isBehind) continue
      words.copyWithin(free, at, at + WORDS)
      free = at
    }
    words.fill(0, free, free + WORDS)
  }

  /** All entries as little-endian words, unordered. */
  encode(): Uint8Array {
    const words = this.#words
    const out = new Uint32Array(this.size * WORDS)
    let length = 0
    for (let at = 0; at < words.length; at += WORDS) {
      if (words[at] === 0) continue
      // Word by word: creating a view per slot costs more than the copy.
      for (let word = 0; word < WORDS; word++) out[length++] = words[at + word] ?? 0
    }
    return new Uint8Array(out.buffer)
  }

  /** Undefined for malformed bytes. */
  static decode(bytes: Uint8Array): MarkTable | undefined {
    if (bytes.length % MARK_BYTES !== 0) return undefined
    const words = new Uint32Array(Uint8Array.from(bytes).buffer)
    const table = new MarkTable(bytes.length / MARK_BYTES)
    for (let at = 0; at < words.length; at += WORDS) {
      const id = { hi: words[at] ?? 0, lo: words[at + 1] ?? 0 }
      table.set(id, { hi: words[at + 2] ?? 0, lo: words[at + 3] ?? 0 })
    }
    return table.size * MARK_BYTES === bytes.length ? table : undefined
  }

  /** The slot of an ID, or the free slot for it. */
  #find(hi: number, lo: number): number {
    const words = this.#words
    let at = this.#home(lo)
    while (words[at] !== 0 && (words[at] !== hi || words[at + 1] !== lo)) at = this.#next(at)
    return at
  }

  #home(lo: number): number {
    return (lo & this.#mask) * WORDS
  }

  #next(at: number): number {
    return (at + WORDS) & (this.#words.length - 1)
  }

  #grow(): void {
    const before = this.#words
    this.#mask = (this.#mask + 1) * 2 - 1
    this.#words = new Uint32Array((this.#mask + 1) * WORDS)
    for (let at = 0; at < before.length; at += WORDS) {
      if (before[at] === 0) continue
      this.#words.set(before.subarray(at, at + WORDS), this.#find(before[at] ?? 0, before[at + 1] ?? 0))
    }
  }
}
