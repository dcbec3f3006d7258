/**
 * Plants each mutant of `test/long/mutants/` in a copy of the tree, runs its test and expects a failure. Prints the score, the
 * mutants that survived and the promises of the documents that have no mutant; exits with 1 when there is one of either.
 *
 *     node scripts/mutants.ts [-only PATTERN] [-at-once N] [-list]
 *
 * A mutant counts only if its source still compiles, its test passes without it, and a test fails with it.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { stripTypeScriptTypes } from 'node:module'
import {
  type ListedMutant,
  listFaults,
  placeOf,
  readMutants,
  readSources,
  uncoveredPromises,
} from '../test/long/mutants/mutant-list.ts'
import { type TestRun, TreeCopy } from './mutant-run.ts'
import { directoryInMemory } from './test-directory.ts'

const ROOT = resolve(import.meta.dirname, '..')
const AT_ONCE_MAX = 2
const BASELINE_TIMEOUT_MS = 300_000
/** Factor on the duration without the mutant, which allows for other load on the machine. */
const SLOWDOWN_MAX = 4
const TIMEOUT_MS_MIN = 30_000

interface PlantedMutant extends ListedMutant {
  readonly file: string
  readonly mutated: string
}

type Verdict = { readonly isKilled: boolean; readonly text: string }

const { values } = parseArgs({
  args: process.argv.slice(2).map((argument) => argument.replace(/^-(?=[a-z]{2})/, '--')),
  options: { only: { type: 'string' }, 'at-once': { type: 'string' }, list: { type: 'boolean', default: false } },
})
const only = new RegExp(values.only ?? '', 'i')
const atOnce = Math.min(AT_ONCE_MAX, Number(values['at-once'] ?? Math.min(AT_ONCE_MAX, availableParallelism())))

const list = await readMutants(ROOT)
const isChosen = (mutant: ListedMutant) =>
  [mutant.promise, mutant.before, mutant.test, mutant.listedIn, mutant.document].some((text) => only.test(text))
const chosen = list.mutants.filter(isChosen)

if (values.list) {
  for (const mutant of chosen) print(`${mutant.document}: ${mutant.promise}\n    ${mutant.before}\n    ${mutant.after}`)
} else {
  const faults = listFaults(ROOT, list)
  const survivors = await runAll(chosen)
  const uncovered = values.only === undefined ? uncoveredPromises(ROOT, list) : []
  show('faults of the list', faults)
  show('promises without a mutant', uncovered)
  show('survivors', survivors)
  print(`\nkilled ${chosen.length - survivors.length} of ${chosen.length}`)
  process.exitCode = faults.length + uncovered.length + survivors.length === 0 ? 0 : 1
}

/** Resolves with a line for each surviving mutant. */
async function runAll(mutants: readonly ListedMutant[]): Promise<string[]> {
  const survivors: string[] = []
  const report = (mutant: ListedMutant, { isKilled, text }: Verdict) => {
    const line = `${mutant.document}: "${mutant.promise}", ${mutant.test}: ${text}\n    ${mutant.before}\n    ${mutant.after}`
    if (isKilled) print(`killed    ${mutant.promise}: ${text}`)
    else {
      survivors.push(line)
      print(`SURVIVED  ${line}`)
    }
  }
  const directory = directoryInMemory() ?? mkdtempSync(join(tmpdir(), 'op-'))
  const copies = Array.from({ length: atOnce }, (_, index) => new TreeCopy(ROOT, join(directory, String(index))))
  const remove = () => {
    for (const copy of copies) copy.remove()
    rmSync(directory, { recursive: true, force: true })
  }
  process.once('exit', remove)
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))
  try {
    const [first] = copies
    if (first === undefined) return survivors
    const planted = compiling(first, mutants, report)
    const baselines = new Map<string, Promise<TestRun>>()
    const queue = planted.toSorted((a, b) => a.test.localeCompare(b.test))
    await Promise.all(
      copies.map(async (copy) => {
        for (let mutant = queue.shift(); mutant !== undefined; mutant = queue.shift()) {
          report(mutant, await verdictOf(copy, mutant, baselines))
        }
      }),
    )
  } finally {
    remove()
  }
  return survivors
}

/** The mutants whose sources compile; any test would detect the others. */
function compiling(
  copy: TreeCopy,
  mutants: readonly ListedMutant[],
  report: (mutant: ListedMutant, verdict: Verdict) => void,
): PlantedMutant[] {
  const sources = readSources(ROOT)
  const byFile = new Map<string, PlantedMutant[]>()
  for (const mutant of mutants) {
    const place = placeOf(sources, mutant)
    const fault = 'fault' in place ? place.fault : syntaxFault(place.mutated)
    if (fault !== undefined) report(mutant, { isKilled: false, text: fault })
    else if ('file' in place) byFile.set(place.file, [...(byFile.get(place.file) ?? []), { ...mutant, ...place }])
  }
  const good: PlantedMutant[] = []
  const rounds = Math.max(0, ...[...byFile.values()].map(({ length }) => length))
  for (let round = 0; round < rounds; round++) {
    const planted = [...byFile.values()].flatMap((ofFile) => ofFile.slice(round, round + 1))
    for (const { file, mutated } of planted) copy.plant(file, mutated)
    const errors = copy.typeErrors()
    copy.restore()
    for (const mutant of planted) {
      const error = errors.get(mutant.file)
      if (error === undefined) good.push(mutant)
      else report(mutant, { isKilled: false, text: `does not compile: ${mutant.file}, ${error}` })
    }
  }
  return good
}

function syntaxFault(text: string): string | undefined {
  try {
    stripTypeScriptTypes(text)
    return undefined
  } catch (error) {
    return `does not parse: ${String(error)}`
  }
}

async function verdictOf(
  copy: TreeCopy,
  mutant: PlantedMutant,
  baselines: Map<string, Promise<TestRun>>,
): Promise<Verdict> {
  const key = `${mutant.test} ${mutant.testName ?? ''}`
  const baseline = baselines.get(key) ?? copy.run(mutant, BASELINE_TIMEOUT_MS)
  baselines.set(key, baseline)
  const without = await baseline
  const failed = firstFailure(without)
  if (failed !== undefined) return { isKilled: false, text: `the test fails without the mutant: ${failed}` }
  if (!without.results.some(({ isPassed }) => isPassed)) return { isKilled: false, text: 'no test runs' }
  copy.plant(mutant.file, mutant.mutated)
  const run = await copy.run(mutant, Math.max(TIMEOUT_MS_MIN, SLOWDOWN_MAX * without.durationMs))
  copy.restore()
  const failure = firstFailure(run)
  const seconds = `${(run.durationMs / 1000).toFixed(1)} s`
  if (failure === undefined) return { isKilled: false, text: `no test failed, ${seconds}` }
  if (run.results.length === 0 && !run.isTimedOut)
    return { isKilled: false, text: `the test does not load: ${run.stderr.slice(0, 300)}` }
  return { isKilled: true, text: `${failure}, ${seconds}` }
}

/** The failed test or another cause of the failure; undefined for a run that has passed. */
function firstFailure({ results, isTimedOut, exitCode, stderr }: TestRun): string | undefined {
  const failed = results.find(({ isPassed }) => !isPassed)
  if (failed !== undefined) return `"${failed.name}": ${failed.error.split('\n')[0]}`
  if (isTimedOut) return 'timed out'
  return exitCode === 0 ? undefined : `exit code ${exitCode}: ${stderr.trim().split('\n').at(-1)}`
}

function show(title: string, lines: readonly string[]): void {
  if (lines.length > 0) print(`\n${title}: ${lines.length}\n${lines.join('\n')}`)
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}
