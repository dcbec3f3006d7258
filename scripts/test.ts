/**
 * Runs the tests: those that may run side by side first, more at once than there are processors because half of their
 * time is waiting, then those that measure time or resources, one at a time.
 *
 * A file belongs to the second phase when its name ends in `.serial.test.ts`. Small files of a folder share a process
 * (`test-groups.ts`), each other file has one of its own. A run of many files bundles each process (`test-bundle.ts`); what Node
 * has compiled of sources is kept between processes and runs, so that types are stripped from each file once. Directories of
 * tests are in memory where that can be (`test-directory.ts`). The longest start first. At the end the files with the longest wall and CPU
 * times and the totals are printed.
 *
 *     node scripts/test.ts                      every test
 *     node scripts/test.ts test/store a.test.ts those files, and the files in those folders
 *     node scripts/test.ts --changed            those that the difference to HEAD can affect (--since REV: to REV)
 *     --concurrency N                           files at once in the first phase
 */
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'
import { parseArgs } from 'node:util'
import { affectedTests } from './affected-tests.ts'
import { TestBundles } from './test-bundle.ts'
import { TestDurations } from './test-durations.ts'
import { cpuSeconds, cpuSecondsByProcess, showLargest } from './test-measurements.ts'
import { type Groups, groupsOf } from './test-groups.ts'
import { bundledProgram, forgetCompiled } from './test-program.ts'
import { directoryInMemory } from './test-directory.ts'

const ROOT = resolve(import.meta.dirname, '..')
/** Run by `test-long.ts` only. */
const LONG = join(ROOT, 'test/long/')
/** Time limit of one file, for a slow, busy machine. */
const FILE_TIMEOUT_MS = 600_000
/**
 * Concurrent files per processor: about half of their time is waiting, and more processes get a larger share beside
 * other work.
 */
const FILES_PER_PROCESSOR = 3
/** Minimum number of files for which bundling the tests and the program pays off. */
const BUNDLED_FROM_FILES = 20

/**
 * Garbage collector threads wait for each other on busy processors, which costs a tenth of the CPU of a short process.
 * Serial tests measure, so they run the program without this option.
 */
const ONE_COLLECTOR = '--single-threaded-gc'

/** Tests allocate from the start: a young generation that has to grow is collected repeatedly. */
const YOUNG_AT_ONCE = '--min-semi-space-size=16'

const TEST_PROCESS = `--require=${join(import.meta.dirname, 'test-process.cts')}`

const failedBundles: string[] = []

const OWN_NODE_OPTIONS = process.env['OUTPOST_NODE_OPTIONS'] ?? ''

interface PhaseResult {
  readonly passed: number
  readonly failed: number
  readonly skipped: number
  /** Milliseconds of each file, including its process. */
  readonly durationsMs: ReadonlyMap<string, number>
  /** Names of the failed tests after their file. */
  readonly failures: readonly string[]
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    changed: { type: 'boolean', default: false },
    since: { type: 'string', default: 'HEAD' },
    concurrency: { type: 'string' },
  },
})

function testFilesOf(path: string): string[] {
  if (!statSync(path).isDirectory()) return [path]
  return readdirSync(path, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.test.ts'))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => !file.startsWith(LONG))
    .toSorted()
}

function chosenFiles(): string[] {
  const named = positionals.length === 0 ? [join(ROOT, 'test')] : positionals.map((path) => resolve(path))
  const files = [...new Set(named.flatMap(testFilesOf))]
  return values.changed ? affectedTests(ROOT, files, values.since) : files
}

/** Repeated at the end, and fails the run: tests pass from the sources, too, and would only be slow. */
function reportFailedBundle(what: string, error: unknown): void {
  print(`bundling ${what} failed, the slower sources run: ${String(error)}`)
  failedBundles.push(`bundling ${what} failed`)
}

/** The program that tests start: a bundle of the current sources, or the sources if bundling failed. */
function chooseProgram(files: readonly string[]): void {
  try {
    const program = bundledProgram(ROOT, files.length >= BUNDLED_FROM_FILES)
    if (program !== undefined) process.env['OUTPOST_TEST_PROGRAM'] = program
  } catch (error) {
    reportFailedBundle('the program', error)
  }
}

/** Bundles of the groups; undefined for a small run, and if bundling failed. */
async function bundledTests(groups: Groups): Promise<TestBundles | undefined> {
  if (files.length < BUNDLED_FROM_FILES) return undefined
  try {
    return await TestBundles.make(ROOT, groups)
  } catch (error) {
    reportFailedBundle('the tests', error)
    return undefined
  }
}

/** Runs the files, prints each test as it ends, and resolves with the results. */
async function runPhase(
  title: string,
  sources: Groups,
  { bundles, concurrency }: { readonly bundles?: TestBundles | undefined; readonly concurrency: number },
): Promise<PhaseResult> {
  const groups = bundles?.groups ?? sources
  const sourceOf = (file: string | undefined, line = 0) => file && (bundles?.sourceOf(file, line) ?? file)
  const execArgv = concurrency > 1 ? [ONE_COLLECTOR] : []
  // For agents and commands that a test starts.
  process.env['OUTPOST_NODE_OPTIONS'] = [...execArgv, OWN_NODE_OPTIONS].join(' ').trim()
  if (directory !== undefined && concurrency > 1) process.env['TMPDIR'] = directory
  else if (directory !== undefined) delete process.env['TMPDIR']
  const durationsMs = new Map<string, number>()
  const failures: string[] = []
  let counts = { passed: 0, cancelled: 0, skipped: 0, todo: 0 }
  if (groups.size === 0) return { passed: 0, failed: 0, skipped: 0, durationsMs, failures }
  const count = [...groups.values()].flat().length
  print(`\n${title}: ${count} files in ${groups.size} processes, ${concurrency} at once\n`)
  const events = run({
    files: [...groups.keys()],
    concurrency,
    timeout: FILE_TIMEOUT_MS,
    execArgv: [...execArgv, ...(concurrency > 1 ? [YOUNG_AT_ONCE] : []), TEST_PROCESS],
  })
  const shared = new Set([...groups.values()].filter(({ length }) => length > 1).flat())
  events.on('test:complete', ({ file: ran, line, name, nesting, details }) => {
    const file = sourceOf(ran, line)
    if (nesting !== 0 || file === undefined) return
    const members = groups.get(resolve(name)) ?? []
    if (members[0] !== undefined && members.length === 1) durationsMs.set(members[0], details.duration_ms)
    // For a file that shares a process only its tests are measured.
    else if (shared.has(file)) durationsMs.set(file, (durationsMs.get(file) ?? 0) + details.duration_ms)
  })
  events.on('test:fail', ({ file, line, name }) =>
    failures.push(`${relative(ROOT, sourceOf(file, line) ?? '')}: ${name}`),
  )
  events.on('test:summary', (summary) => {
    if (summary.file === undefined) ({ counts } = summary)
  })
  const shown = events.compose(spec)
  for await (const text of shown) process.stdout.write(String(text))
  const { passed, cancelled, skipped, todo } = counts
  return { passed, failed: failures.length + cancelled, skipped: skipped + todo, durationsMs, failures }
}

// Inherited by every process that a test starts.
const compiled = (process.env['NODE_COMPILE_CACHE'] ??= join(ROOT, 'node_modules/.cache/compiled-tests'))

const told = mkdtempSync(join(tmpdir(), 'outpost-test-cpu-'))
process.env['OUTPOST_TEST_CPU'] = join(told, 'cpu')
process.once('exit', () => rmSync(told, { recursive: true, force: true }))

const startedMs = performance.now()
const files = chosenFiles()
chooseProgram(files)
forgetCompiled(compiled)
const directory = directoryInMemory()
const durations = new TestDurations(ROOT)
const isSerial = (file: string) => file.endsWith('.serial.test.ts')
const concurrency = Number(values.concurrency ?? Math.ceil(FILES_PER_PROCESSOR * availableParallelism()))
const groups = groupsOf(
  ROOT,
  files.filter((file) => !isSerial(file)),
  (file) => durations.supposedMs(file),
)
const sideBySide = durations.longestFirst(groups)
const bundles = await bundledTests(sideBySide)
const phases = [
  await runPhase('side by side', sideBySide, { bundles, concurrency }),
  // Serial tests run without changes.
  await runPhase('one at a time', new Map(files.filter(isSerial).map((file) => [file, [file]])), { concurrency: 1 }),
]
const sum = (of: (phase: PhaseResult) => number) => phases.reduce((total, phase) => total + of(phase), 0)
const durationsMs = new Map(phases.flatMap((phase) => [...phase.durationsMs]))
durations.keep(durationsMs)
const secondsOf = ([file, ms]: [string, number]): [string, number] => [file, ms / 1000]
showLargest('slowest files', ROOT, new Map([...durationsMs].map(secondsOf)))
showLargest('processes with most of the CPU', ROOT, cpuSecondsByProcess(join(told, 'cpu')))
const failures = [...failedBundles, ...phases.flatMap((phase) => phase.failures)]
if (failures.length > 0) print(`\nfailed:\n${failures.join('\n')}`)
print(`\n${Math.round((performance.now() - startedMs) / 1000)} s, ${Math.round(cpuSeconds())} s of CPU`)
print(
  `${sum((phase) => phase.passed)} passed, ${sum((phase) => phase.failed)} failed, ${sum((phase) => phase.skipped)} skipped`,
)
if (files.length > 0 && sum((phase) => phase.passed) === 0) print('no test ran')
const code = failures.length > 0 || (files.length > 0 && sum((phase) => phase.passed) === 0) ? 1 : 0
// A child process that holds the output of a test would keep this process running, so it exits at once.
process.stdout.write('', () => process.exit(code))

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}
