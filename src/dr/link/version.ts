/** Versions of the program on both ends: a primary is never newer than its secondaries. */

/** True when `one` comes before `other`; only `major.minor.patch` counts, and what is none counts as the oldest. */
export function isOlder(one: string, other: string): boolean {
  const [a, b] = [numbersOf(one), numbersOf(other)]
  for (const [at, number] of a.entries()) {
    const difference = number - (b[at] ?? 0)
    if (difference !== 0) return difference < 0
  }
  return false
}

function numbersOf(version: string): number[] {
  const match = /^v?(\d+)\.(\d+)\.(\d+)/.exec(version)
  return [1, 2, 3].map((at) => Number(match?.[at] ?? 0))
}
