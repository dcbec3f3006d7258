/**
 * Lines that match a pattern, found in a block of whole lines.
 */
import { RE2JS } from 're2js'

const NEWLINE = 10
const CARRIAGE_RETURN = 13

/** A compiled pattern. What it costs is time and memory of the thread that has it. */
export class PatternSearch {
  readonly #pattern: RE2JS

  constructor(text: string) {
    this.#pattern = RE2JS.compile(text, RE2JS.MULTILINE)
  }

  /** The begin and end of each stretch of lines of `block` that match, in order. The last line may lack its end. */
  matches(block: Buffer): number[] {
    const found: number[] = []
    let last = -1
    for (let at = 0; at < block.length; ) {
      const newline = block.indexOf(NEWLINE, at)
      const end = newline < 0 ? block.length : newline
      const next = newline < 0 ? block.length : newline + 1
      const textEnd = newline > at && block[newline - 1] === CARRIAGE_RETURN ? newline - 1 : end
      if (this.#pattern.test(block.toString('utf8', at, textEnd))) {
        if (last === at) found[found.length - 1] = next
        else found.push(at, next)
        last = next
      }
      at = next
    }
    return found
  }
}
