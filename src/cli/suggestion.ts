/**
 * "Did you mean": the known word that a mistyped one is nearest to, when it is near enough to be worth saying.
 */

const DISTANCE_MAX = 2

/** `, did you mean X?` for the nearest of `known`, or the empty string. `prefix` is put before the suggestion. */
export function didYouMean(typed: string, known: readonly string[], prefix = ''): string {
  let best: string | undefined
  let bestDistance = Number.POSITIVE_INFINITY
  for (const word of known) {
    const distance = word.startsWith(typed) && typed.length >= 2 ? 1 : editDistance(typed, word)
    if (distance < bestDistance) [best, bestDistance] = [word, distance]
  }
  const limit = Math.min(DISTANCE_MAX, Math.ceil(typed.length / 2))
  return best !== undefined && bestDistance <= limit ? `, did you mean ${prefix}${best}?` : ''
}

/** Insertions, deletions, replacements and swaps of neighbours that turn one word into the other. */
function editDistance(from: string, to: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let row = 1; row <= from.length; row++) {
    const current = [row]
    for (let column = 1; column <= to.length; column++) {
      const same = from[row - 1] === to[column - 1]
      let cost = Math.min(
        (last[column] ?? 0) + 1,
        (current[column - 1] ?? 0) + 1,
        (last[column - 1] ?? 0) + (same ? 0 : 1),
      )
      if (row > 1 && column > 1 && from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1]) {
        cost = Math.min(cost, (beforeLast[column - 2] ?? 0) + 1)
      }
      current.push(cost)
    }
    beforeLast = last
    last = current
  }
  return last[to.length] ?? 0
}
