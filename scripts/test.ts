/**
 * Runs the tests, more files at once than there are processors, because half of their time is waiting.
 *
 * Small files of a folder share a process (`test-groups.ts`), each other file has a separate one. A run of many files bundles each
 * process (`test-bundle.ts`). The code that Node has compiled is kept between processes and runs. Directories of tests are in
 * memory if possible (`test-directory.ts`). The longest files start first. At the end the files with the longest wall and CPU
 * times and the totals are printed.
 *
 * In a run of many files, one or two files with failed tests run again, alone and from the sources. Tests that pass then are printed
 * as unstable, with their first error above, and do not fail the run: see docs/decisions/054-shared-test-processes.md.
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
/** More files with failed tests are not repeated: the cause is not the load of the machine. */
const REPEATED_FILES_MAX = 2

/** Garbage collector threads wait for each other on busy processors, which costs a tenth of the CPU of a short process. */
const ONE_COLLECTOR = '--single-threaded-gc'

/** Tests allocate from the start: a young generation that has to grow is collected repeatedly. */
const YOUNG_AT_ONCE = '--min-semi-space-size=16'

const TEST_PROCESS = `--require=${join(import.meta.dirname, 'test-process.cts')}`

const failedBundles: string[] = []

interface PhaseResult {
  readonly passed: number
  readonly failed: number
  readonly skipped: number
  /** Milliseconds of each file, including its process. */
  readonly durationsMs: ReadonlyMap<string, number>
  readonly failures: readonly TestFailure[]
  /** Source files of which a test passed. */
  readonly passedFiles: ReadonlySet<string>
}

interface TestFailure {
  /** The source file of the test; the file of the process if that ended early. */
  readonly file: string
  readonly name: string
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
  const durationsMs = new Map<string, number>()
  const failures: TestFailure[] = []
  const passedFiles = new Set<string>()
  let counts = { passed: 0, cancelled: 0, skipped: 0, todo: 0 }
  if (groups.size === 0) return { passed: 0, failed: 0, skipped: 0, durationsMs, failures, passedFiles }
  const count = [...groups.values()].flat().length
  print(`\n${title}: ${count} files in ${groups.size} processes, ${concurrency} at once\n`)
  const events = run({
    files: [...groups.keys()],
    concurrency,
    timeout: FILE_TIMEOUT_MS,
    execArgv: [ONE_COLLECTOR, YOUNG_AT_ONCE, TEST_PROCESS],
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
  events.on('test:fail', ({ file, line, name }) => failures.push({ file: sourceOf(file, line) ?? '', name }))
  events.on('test:pass', ({ file, line, name }) => {
    const source = sourceOf(file, line)
    // Node reports a file that declares no test as a passed test with the name of the file.
    if (source !== undefined && resolve(name) !== source) passedFiles.add(source)
  })
  events.on('test:summary', (summary) => {
    if (summary.file === undefined) ({ counts } = summary)
  })
  const shown = events.compose(spec)
  for await (const text of shown) process.stdout.write(String(text))
  const { passed, cancelled, skipped, todo } = counts
  return { passed, failed: failures.length + cancelled, skipped: skipped + todo, durationsMs, failures, passedFiles }
}

// Inherited by every process that a test starts.
const compiled = (process.env['NODE_COMPILE_CACHE'] ??= join(ROOT, 'node_modules/.cache/compiled-tests'))

const cpuDirectory = mkdtempSync(join(tmpdir(), 'outpost-test-cpu-'))
process.env['OUTPOST_TEST_CPU'] = join(cpuDirectory, 'cpu')
process.once('exit', () => rmSync(cpuDirectory, { recursive: true, force: true }))

const startedMs = performance.now()
const files = chosenFiles()
chooseProgram(files)
forgetCompiled(compiled)
// For agents and commands that a test starts.
process.env['OUTPOST_NODE_OPTIONS'] = `${ONE_COLLECTOR} ${process.env['OUTPOST_NODE_OPTIONS'] ?? ''}`.trim()
const directory = directoryInMemory()
if (directory !== undefined) process.env['TMPDIR'] = directory
const durations = new TestDurations(ROOT)
const concurrency = Number(values.concurrency ?? Math.ceil(FILES_PER_PROCESSOR * availableParallelism()))
const groups = groupsOf(ROOT, files, (file) => durations.supposedMs(file))
const sideBySide = durations.longestFirst(groups)
const bundles = await bundledTests(sideBySide)
const first = await runPhase('side by side', sideBySide, { bundles, concurrency })
const repeated = await repeatFailed(first)
durations.keep(first.durationsMs)
const secondsOf = ([file, ms]: [string, number]): [string, number] => [file, ms / 1000]
showLargest('slowest files', ROOT, new Map([...first.durationsMs].map(secondsOf)))
showLargest('processes with most of the CPU', ROOT, cpuSecondsByProcess(join(cpuDirectory, 'cpu')))
const unstable = repeated?.failed === 0 ? first.failures : []
if (unstable.length > 0) printFailures('unstable: failed, and passed when repeated alone', unstable)
const last = repeated ?? first
const failures = [...failedBundles.map((name) => ({ file: ROOT, name })), ...last.failures]
if (failures.length > 0) printFailures('failed', failures)
print(`\n${Math.round((performance.now() - startedMs) / 1000)} s, ${Math.round(cpuSeconds())} s of CPU`)
const ifUnstable = unstable.length > 0 ? `, ${unstable.length} unstable` : ''
print(`${first.passed} passed, ${last.failed} failed, ${first.skipped} skipped${ifUnstable}`)
if (files.length > 0 && first.passed === 0) print('no test ran')
const code = failures.length > 0 || last.failed > 0 || (files.length > 0 && first.passed === 0) ? 1 : 0
// A child process that holds the output of a test would keep this process running, so it exits at once.
process.stdout.write('', () => process.exit(code))

/** Undefined if no test failed, or too many. A process that ended early is not repeated. A repeated file has to pass a test. */
async function repeatFailed(phase: PhaseResult): Promise<PhaseResult | undefined> {
  const failedFiles = [...new Set(phase.failures.map(({ file }) => file))]
  const isRepeatable =
    files.length >= BUNDLED_FROM_FILES &&
    failedFiles.length <= REPEATED_FILES_MAX &&
    phase.failed === phase.failures.length &&
    failedFiles.every((file) => files.includes(file))
  if (phase.failed === 0 || !isRepeatable) return undefined
  const alone: Groups = new Map(failedFiles.map((file) => [file, [file]]))
  const repeat = await runPhase('failed files again', alone, { concurrency: 1 })
  const withoutTests = failedFiles
    .filter((file) => !repeat.passedFiles.has(file))
    .map((file) => ({ file, name: 'no test passed when repeated' }))
  return { ...repeat, failed: repeat.failed + withoutTests.length, failures: [...repeat.failures, ...withoutTests] }
}

function printFailures(title: string, of: readonly TestFailure[]): void {
  print(`\n${title}:\n${of.map(({ file, name }) => `${relative(ROOT, file)}: ${name}`).join('\n')}`)
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}
