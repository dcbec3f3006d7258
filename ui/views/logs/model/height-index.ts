/**
 * Where each entry of a list begins: entries have consecutive numbers and heights of their own, are appended at the end and removed at the
 * beginning. Heights are added up in blocks, so a position is found without a pass over all entries.
 */

const BLOCK = 512

export class HeightIndex {
  /** Number of the first entry, and after the last one. */
  #first = 0
  #end = 0
  #heights = new Uint32Array(BLOCK * 2)
  /** Sums of blocks; the first belongs to block `#firstBlock`. */
  #blocks: number[] = []
  #firstBlock = 0
  #total = 0

  get total(): number {
    return this.#total
  }

  push(height: number): void {
    if (this.#end - this.#first === this.#heights.length) this.#grow()
    const id = this.#end++
    this.#heights[id % this.#heights.length] = height
    const block = Math.floor(id / BLOCK) - this.#firstBlock
    this.#blocks[block] = (this.#blocks[block] ?? 0) + height
    this.#total += height
  }

  shift(): void {
    if (this.#first === this.#end) return
    const height = this.heightOf(this.#first)
    this.#blocks[0] = (this.#blocks[0] ?? 0) - height
    this.#total -= height
    this.#first++
    if (Math.floor(this.#first / BLOCK) > this.#firstBlock) {
      this.#blocks.shift()
      this.#firstBlock++
    }
  }

  heightOf(id: number): number {
    return id < this.#first || id >= this.#end ? 0 : (this.#heights[id % this.#heights.length] ?? 0)
  }

  set(id: number, height: number): void {
    if (id < this.#first || id >= this.#end) return
    const change = height - this.heightOf(id)
    this.#heights[id % this.#heights.length] = height
    const block = Math.floor(id / BLOCK) - this.#firstBlock
    this.#blocks[block] = (this.#blocks[block] ?? 0) + change
    this.#total += change
  }

  /** Sum of the heights before an entry. */
  topOf(id: number): number {
    const to = Math.min(Math.max(id, this.#first), this.#end)
    const block = Math.floor(to / BLOCK)
    let top = 0
    for (let at = this.#firstBlock; at < block; at++) top += this.#blocks[at - this.#firstBlock] ?? 0
    for (let at = Math.max(block * BLOCK, this.#first); at < to; at++) top += this.heightOf(at)
    return top
  }

  /** The entry at a position; the last one behind the end. */
  idAt(position: number): number {
    let top = 0
    let block = 0
    while (block < this.#blocks.length - 1 && top + (this.#blocks[block] ?? 0) <= position) {
      top += this.#blocks[block++] ?? 0
    }
    let id = Math.max((block + this.#firstBlock) * BLOCK, this.#first)
    while (id < this.#end - 1 && top + this.heightOf(id) <= position) top += this.heightOf(id++)
    return id
  }

  #grow(): void {
    const larger = new Uint32Array(this.#heights.length * 2)
    for (let id = this.#first; id < this.#end; id++) larger[id % larger.length] = this.heightOf(id)
    this.#heights = larger
  }
}
