/**
 * Compares recorded answers with ours through the table of differences.
 *
 * Each difference turns the recorded answer into the one that is expected of us, for the rows that it names. Applied one
 * after another they must give exactly our answer. So a row that differs without an entry fails, and so does one whose
 * difference has gone; an entry that turned nothing into anything else is stale, and fails at the end.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import type { Comparable } from './comparable.ts'
import type { RecordedRow } from './recording.ts'

export interface Difference {
  /** The heading in docs/compatibility.md under which it is explained. */
  readonly because: string
  /** Names of the rows, with the recording's name in front. */
  readonly rows: RegExp
  readonly turn: (recorded: Comparable, row: RecordedRow) => Comparable
}

export class Judge {
  readonly #differences: readonly Difference[]
  readonly #used = new Map<Difference, number>()
  readonly #classes = new Map<string, number>()
  rows = 0
  #identical = 0

  constructor(differences: readonly Difference[]) {
    this.#differences = differences
  }

  /** Fails unless our answer is the recorded one with the listed differences. */
  check(row: RecordedRow, before: Comparable, actual: Comparable): void {
    let expected = before
    const because = new Set<string>()
    for (const difference of this.#differences) {
      if (!difference.rows.test(row.name)) continue
      const turned = difference.turn(expected, row)
      if (JSON.stringify(turned) === JSON.stringify(expected)) continue
      this.#used.set(difference, (this.#used.get(difference) ?? 0) + 1)
      because.add(difference.because)
      expected = turned
    }
    this.rows++
    if (because.size === 0) this.#identical++
    for (const name of because) this.#classes.set(name, (this.#classes.get(name) ?? 0) + 1)
    const applied = [...because].join('; ') || 'none'
    assert.deepEqual(actual, expected, `${row.name} (${row.method} ${row.path}), differences applied: ${applied}`)
  }

  stale(): string[] {
    return this.#differences.filter((each) => !this.#used.has(each)).map((each) => `${each.because}: ${each.rows}`)
  }

  summary(): string {
    const classes = [...this.#classes].sort(([, a], [, b]) => b - a).map(([name, count]) => `  ${count} ${name}`)
    return [`${this.rows} exchanges, ${this.#identical} identical; differences by class:`, ...classes].join('\n')
  }
}

/** Differences that docs/compatibility.md does not explain under a heading of that name. */
export function unexplained(differences: readonly Difference[]): string[] {
  const headings = explained()
  return differences.map(({ because }) => because).filter((because) => !headings.includes(because))
}

/** The headings of docs/compatibility.md, each of which explains a class of differences. */
export function explained(): string[] {
  const text = readFileSync(resolve(import.meta.dirname, '../../docs/compatibility.md'), 'utf8')
  return [...text.matchAll(/^### (.+)$/gm)].map(([, heading = '']) => heading)
}
