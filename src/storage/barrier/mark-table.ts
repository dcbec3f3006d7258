/**
 * A table of marks under IDs, both of 64 random bits, in 16 bytes each and a third of room: what a Map of texts would take
 * some ten times of. Open addressing with linear probing; what is deleted leaves no tombstone.
 */

/** 64 bits, as two unsigned numbers of 32. */
export interface Mark {
  readonly hi: number
  readonly lo: number
}

const WORDS = 4
const SLOTS_MIN = 8
/** Of the slots in use, at most. */
const LOAD_MAX = 0.75
export const MARK_BYTES = WORDS * 4

export class MarkTable {
  /** ID and mark, four words; the first is 0 in a slot that is free. */
  #words: Uint32Array<ArrayBuffer>
  #mask: number
  size = 0

  constructor(sizeExpected = 0) {
    let slots = SLOTS_MIN
    while (slots * LOAD_MAX < sizeExpected) slots *= 2
    this.#words = new Uint32Array(slots * WORDS)
    this.#mask = slots - 1
  }

  get({ hi, lo }: Mark): Mark | undefined {
    const at = this.#find(hi, lo)
    const words = this.#words
    return words[at] === 0 ? undefined : { hi: words[at + 2] ?? 0, lo: words[at + 3] ?? 0 }
  }

  /** `id.hi` is not 0. */
  set(id: Mark, mark: Mark): void {
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

  delete({ hi, lo }: Mark): void {
    const words = this.#words
    let free = this.#find(hi, lo)
    if (words[free] === 0) return
    this.size--
    // What was put behind it because the slot was taken moves up.
    for (let at = this.#next(free); words[at] !== 0; at = this.#next(at)) {
      const home = this.#home(words[at + 1] ?? 0)
      const isBehind = free <= at ? home <= free || home > at : home <= free && home > at
      if (!isBehind) continue
      words.copyWithin(free, at, at + WORDS)
      free = at
    }
    words.fill(0, free, free + WORDS)
  }

  /** All of it, as little-endian words in no order. */
  encode(): Uint8Array {
    const words = this.#words
    const out = new Uint32Array(this.size * WORDS)
    let length = 0
    for (let at = 0; at < words.length; at += WORDS) {
      if (words[at] === 0) continue
      // Word by word: a view for each slot costs more than all the rest.
      for (let word = 0; word < WORDS; word++) out[length++] = words[at + word] ?? 0
    }
    return new Uint8Array(out.buffer)
  }

  /** Undefined for what no table has encoded. */
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

  /** The slot of an ID, or the free one where it would be. */
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
