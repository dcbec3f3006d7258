/** A simple model of which lines a search outputs. */

export interface NaiveSearch {
  readonly pattern: RegExp
  readonly invert: boolean
  readonly context: number
}

/** Lines with their line ends; the last one may have none. */
export function linesIn(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? []
}

export function naiveGrep(text: string, { pattern, invert, context }: NaiveSearch): string {
  const lines = linesIn(text)
  const matches = lines.map((line) => pattern.test(line.replace(/\r?\n$/, '')) !== invert)
  const given = lines.filter((_, at) => matches.slice(Math.max(0, at - context), at + context + 1).includes(true))
  return given.join('')
}
