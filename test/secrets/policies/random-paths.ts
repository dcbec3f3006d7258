/** Patterns and paths by chance, the same for the same seed. */

/** A small generator of numbers, the same for the same seed. */
export function random(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

/** Segments of patterns. */
export const SEGMENTS = ['a', 'b', 'ab', 'abc', '+', '+', '+', 'a*', '+a', 'a+', '*']
/** Segments of paths that such patterns match, or nearly. */
export const NAMES = ['a', 'b', 'ab', 'abc', 'abcd', '+', '+a', 'a+', 'a*', '']

export function pathOf(pick: (below: number) => number, words: readonly string[]): string {
  return Array.from({ length: 1 + pick(4) }, () => words[pick(words.length)] ?? '').join('/')
}

/** A path that the pattern matches, or nearly. */
export function pathLike(pick: (below: number) => number, pattern: string): string {
  const rest = pattern.endsWith('*') && pick(2) === 0 ? pathOf(pick, NAMES) : ''
  const segments = pattern.replace(/\*$/, rest).split('/')
  return segments.map((segment) => (segment === '+' ? (NAMES[pick(NAMES.length)] ?? '') : segment)).join('/')
}
