/** Checks the numbered lines of the rotating writer as they come, without keeping them. */

export const FILLER = 'the quick brown fox jumps over the lazy dog and goes on for a while '

export function numberedLine(line: number): string {
  return `${line} ${FILLER.slice(0, line % FILLER.length)}`
}

export class LineChecker {
  next = 0
  fault: string | undefined
  #rest = Buffer.alloc(0)

  push(bytes: Buffer): void {
    if (this.fault !== undefined) return
    const text = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes])
    let from = 0
    for (let end = text.indexOf(10); end >= 0; end = text.indexOf(10, from)) {
      const expected = numberedLine(this.next)
      if (end - from !== expected.length || text.toString('latin1', from, end) !== expected) {
        this.fault ??= `line ${this.next} is ${JSON.stringify(text.toString('latin1', from, Math.min(end, from + 90)))}`
        return
      }
      this.next++
      from = end + 1
    }
    this.#rest = Buffer.from(text.subarray(from))
  }
}
