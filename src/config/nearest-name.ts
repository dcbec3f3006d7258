/** Suggests a name for a mistyped one. */

/** Limit of the length, because the time is the product of both lengths. */
const LENGTH_MAX = 64

/** The closest of `names`, if at most a third of the letters differ. */
export function nearestName(typed: string, names: readonly string[]): string | undefined {
  if (typed.length > LENGTH_MAX) return undefined
  const plain = normal(typed)
  let best: string | undefined
  let bestDistance = Math.max(1, Math.floor(plain.length / 3)) + 1
  for (const name of names) {
    const distance = editDistance(plain, normal(name))
    if (distance < bestDistance) {
      best = name
      bestDistance = distance
    }
  }
  return best
}

/** Ignores case, hyphens and underscores: `dataDir` and `data-dir` match `data_dir`. */
function normal(name: string): string {
  return name.toLowerCase().replaceAll(/[-_]/g, '')
}

/** Optimal string alignment distance: insertions, deletions, substitutions and transpositions. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      let cost = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + (same ? 0 : 1))
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (swapped) cost = Math.min(cost, (beforeLast[j - 2] ?? 0) + 1)
      row.push(cost)
    }
    beforeLast = last
    last = row
  }
  return last[b.length] ?? 0
}
