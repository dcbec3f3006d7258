/**
 * How long each test file took when it last ran here, so that the longest begin first and none of them is left alone at
 * the end of a phase. Kept beside what Node has compiled. In a fresh checkout `test-durations.json` stands for it, seconds of
 * the files that took long on two processors once; it need not be right. Of other files the larger come first.
 */
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import type { Groups } from './test-groups.ts'

/** What is supposed of a file that is not known to take long: milliseconds of a test of whole processes, and for each byte of others. */
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

  /** Remembers what has run; files that are gone are forgotten. */
  keep(durationsMs: ReadonlyMap<string, number>): void {
    for (const [file, ms] of durationsMs) this.#known.set(relative(this.#root, file), Math.round(ms))
    const there = [...this.#known].filter(([name]) => statSync(join(this.#root, name), { throwIfNoEntry: false }))
    mkdirSync(dirname(this.#file), { recursive: true })
    writeFileSync(this.#file, `${JSON.stringify(Object.fromEntries(there), undefined, 1)}\n`)
  }

  /** What a file takes: as it did when it last ran here, as it once did, or by what is in it. */
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
