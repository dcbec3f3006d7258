/**
 * Regular expressions that a user or a link chose, in RE2 syntax as those of a filter. The engine of a browser may need years for one line, and
 * cannot be interrupted; this one needs time in proportion to the line. It is loaded with the first expression.
 */
import { ignoresCase, type TextPattern } from './text-pattern.ts'

const LENGTH_MAX = 500
/** Steps for each character of a line, at most. As the server's. */
const PROGRAM_SIZE_MAX = 1200
/** Counts in braces repeat what is before them in the program: their sum is limited before it is compiled. */
const COUNTS_MAX = 2000
/** Each further match may search the rest of the line again. */
const SEARCHED_CHARS_MAX = 50_000

/** Rejects for a text that is not a regular expression, or too costly. */
export async function expressionPattern(text: string): Promise<TextPattern> {
  const { RE2JS } = await import('re2js')
  const counts = Array.from(text.matchAll(/\{(?:\d*,)?(\d+)/g), ([, count]) => Number(count))
  if (text.length > LENGTH_MAX || counts.reduce((sum, count) => sum + count, 0) > COUNTS_MAX) throw tooLarge()
  const expression = RE2JS.compile(text, ignoresCase(text) ? RE2JS.CASE_INSENSITIVE : 0)
  if (expression.programSize() > PROGRAM_SIZE_MAX) throw tooLarge()
  return {
    test: (line) => expression.test(line),
    matches(line) {
      const found: [number, number][] = []
      const matcher = expression.matcher(line)
      let searched = 0
      while (searched <= SEARCHED_CHARS_MAX && matcher.find()) {
        const [start, end] = [matcher.start(), matcher.end()]
        if (end > start) found.push([start, end])
        searched += line.length - end
      }
      return found
    },
  }
}

function tooLarge(): Error {
  return new Error('The expression is too large: use a shorter one, or smaller counts.')
}
