/** What a search looks for in the text of a line. */
export interface TextPattern {
  readonly test: (text: string) => boolean
  /** Starts and ends of the matches; of a long line with very many, the first ones. */
  readonly matches: (text: string) => readonly (readonly [number, number])[]
}

/** A text is searched in any case if it has no capital letter. */
export function ignoresCase(text: string): boolean {
  return text === text.toLowerCase()
}

/** Searches with the engine of the browser, whose time may grow exponentially: only for expressions that are part of the page. */
export function fixedPattern(source: string, isAnyCase: boolean): TextPattern {
  const pattern = new RegExp(source, isAnyCase ? 'gi' : 'g')
  return {
    test(text) {
      pattern.lastIndex = 0
      return pattern.test(text)
    },
    matches(text) {
      // `matchAll` starts there.
      pattern.lastIndex = 0
      const found = Array.from(text.matchAll(pattern), (match) => [match.index, match.index + match[0].length] as const)
      return found.filter(([start, end]) => end > start)
    },
  }
}

function literalExpression(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
}

/** Searches a text as it is. */
export function literalPattern(text: string): TextPattern {
  return fixedPattern(literalExpression(text), ignoresCase(text))
}

/** The filter of the server that finds what a search finds in the lines of the page. */
export function filterOfSearch(text: string, isExpression: boolean): string {
  const expression = isExpression ? text : literalExpression(text)
  return ignoresCase(text) ? `(?i)${expression}` : expression
}
