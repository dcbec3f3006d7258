/**
 * Durations of the last run of each test file on this machine, so that the longest start first. They are stored beside
 * the compile cache of Node. In a fresh checkout `test-durations.json` is used instead: seconds of long files on two
 * processors, which need not be exact. Other files are ordered by size.
 */
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import type { Groups } from './test-groups.ts'

/** Estimate for other files: milliseconds of a test with whole processes, and milliseconds per byte of other tests. */
const SYSTEM_MS = 7000
const MS_PER_BYTE = 0.2

export class TestDurations {
  readonly #root: string
  readonly #file: string
  readonly #known: Map<string, number>
  readonly #once: Readonly<Record<string, number>>

  constructor(root: string) {
    this.#root = root
    this.#file = join(root, 'node_modules/.cache/test-durations.json')
    this.#known = new Map(Object.entries(readDurations(this.#file)))
    this.#once = readDurations(join(root, 'scripts/test-durations.json'))
  }

  longestFirst(groups: Groups): Groups {
    const msOf = (files: readonly string[]) => files.reduce((sum, file) => sum + this.supposedMs(file), 0)
    const supposed = [...groups].map((group) => ({ group, ms: msOf(group[1]) }))
    return new Map(supposed.toSorted((one, other) => other.ms - one.ms).map(({ group }) => group))
  }

  /** Stores the durations of a run; those of removed files are dropped. */
  keep(durationsMs: ReadonlyMap<string, number>): void {
    for (const [file, ms] of durationsMs) this.#known.set(relative(this.#root, file), Math.round(ms))
    const there = [...this.#known].filter(([name]) => statSync(join(this.#root, name), { throwIfNoEntry: false }))
    mkdirSync(dirname(this.#file), { recursive: true })
    writeFileSync(this.#file, `${JSON.stringify(Object.fromEntries(there), undefined, 1)}\n`)
  }

  /** The expected duration: that of the last run, the recorded one, or an estimate by content. */
  supposedMs(file: string): number {
    const name = relative(this.#root, file)
    const known = this.#known.get(name)
    const once = this.#once[name]
    if (known !== undefined || once !== undefined) return known ?? (once ?? 0) * 1000
    return Math.min(SYSTEM_MS, file.includes('/test/system/') ? SYSTEM_MS : statSync(file).size * MS_PER_BYTE)
  }
}

function readDurations(file: string): Record<string, number> {
  try {
    const read: unknown = JSON.parse(readFileSync(file, 'utf8'))
    if (typeof read !== 'object' || read === null) return {}
    return Object.fromEntries(Object.entries(read).filter(([, ms]) => typeof ms === 'number'))
  } catch {
    // Missing or truncated: it is written again.
    return {}
  }
}
