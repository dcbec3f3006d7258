/**
 * A copy of the tree in which one mutant at a time is planted, and the processes of the tests that run there. The packages are
 * those of the tree itself, by a link.
 */
import { spawn, spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { type MutantTestResult, RESULT_MARK } from './mutant-reporter.ts'
import { removeTestDirectory } from './test-directory.ts'

const NOT_COPIED = new Set(['node_modules', '.git', 'dist'])
/** Time for a file to end and clean up after its first failure. */
const GRACE_MS = 500
/** Set in the environment of every process of a run, so that processes in other process groups are found. */
const RUN_VARIABLE = 'OUTPOST_MUTANT_RUN'

export interface TestRun {
  readonly results: readonly MutantTestResult[]
  readonly isTimedOut: boolean
  readonly exitCode: number | null
  readonly durationMs: number
  /** The last output of the process on stderr. */
  readonly stderr: string
}

export interface TestChoice {
  readonly test: string
  readonly testName?: string | undefined
}

export class TreeCopy {
  readonly root: string
  readonly #sources = new Map<string, string>()
  readonly #temporary: string
  #runs = 0
  /** The process of the running test. */
  #running: { readonly pid: number | undefined; readonly runId: string } | undefined

  /** `temporary`: the parent of the temporary directories of runs. A short path, because tests create sockets below it. */
  constructor(root: string, temporary: string) {
    this.root = mkdtempSync(join(tmpdir(), 'outpost-mutants-'))
    // Tests start agents and commands of other users, which must be able to enter it.
    chmodSync(this.root, 0o755)
    this.#temporary = temporary
    mkdirSync(temporary)
    for (const name of readdirSync(root)) {
      if (!NOT_COPIED.has(name)) cpSync(join(root, name), join(this.root, name), { recursive: true })
    }
    symlinkSync(join(root, 'node_modules'), join(this.root, 'node_modules'))
  }

  plant(file: string, mutated: string): void {
    const path = join(this.root, file)
    if (!this.#sources.has(file)) this.#sources.set(file, readFileSync(path, 'utf8'))
    writeFileSync(path, mutated)
  }

  restore(): void {
    for (const [file, text] of this.#sources) writeFileSync(join(this.root, file), text)
    this.#sources.clear()
  }

  /** Errors of the compiler by file, without those about unused code, which a mutant may cause. */
  typeErrors(): Map<string, string> {
    const options = ['--noEmit', '--noUnusedLocals', 'false', '--noUnusedParameters', 'false']
    const compiler = join(this.root, 'node_modules/.bin/tsc')
    const { stdout } = spawnSync(compiler, [...options, '--allowUnreachableCode', 'true', '--pretty', 'false'], {
      cwd: this.root,
      encoding: 'utf8',
      maxBuffer: 64 * 2 ** 20,
    })
    const errors = [...stdout.matchAll(/^(\S+?)\((\d+),\d+\): error (.*)$/gm)]
    return new Map(errors.map(([, file = '', line = '', text = '']) => [file, `line ${line}: ${text}`]))
  }

  /** Runs a test file until it has ended, a test has failed, or its time limit is reached. */
  async run({ test, testName }: TestChoice, timeoutMs: number): Promise<TestRun> {
    const startedMs = performance.now()
    const runId = randomUUID()
    const temporary = join(this.#temporary, String(this.#runs++))
    mkdirSync(temporary, { mode: 0o1777 })
    const pattern = testName === undefined ? [] : [`--test-name-pattern=${testName}`]
    const reporter = [
      `--test-reporter=${join(import.meta.dirname, 'mutant-reporter.ts')}`,
      '--test-reporter-destination=stderr',
    ]
    const child = spawn(
      process.execPath,
      [`--require=${join(this.root, 'scripts/test-process.cts')}`, ...reporter, ...pattern, test],
      {
        cwd: this.root,
        detached: true,
        stdio: ['ignore', 'ignore', 'pipe'],
        env: {
          ...process.env,
          [RUN_VARIABLE]: runId,
          TMPDIR: temporary,
          NODE_COMPILE_CACHE: join(this.root, '.compiled'),
        },
      },
    )
    this.#running = { pid: child.pid, runId }
    const ended = new Promise<number | null>((resolve) => child.once('exit', resolve))
    const results: MutantTestResult[] = []
    let stderr = ''
    const stopping = new AbortController()
    let isTimedOut = false
    const timer = setTimeout(() => {
      isTimedOut = true
      stopping.abort()
    }, timeoutMs)
    createInterface({ input: child.stderr }).on('line', (line) => {
      const at = line.indexOf(RESULT_MARK)
      if (at < 0) {
        stderr = `${stderr}${line}\n`.slice(-4000)
        return
      }
      const result = JSON.parse(line.slice(at + RESULT_MARK.length)) as MutantTestResult
      results.push(result)
      if (!result.isPassed && !stopping.signal.aborted) setTimeout(() => stopping.abort(), GRACE_MS).unref()
    })
    const stopped = new Promise<'stopped'>((resolve) =>
      stopping.signal.addEventListener('abort', () => resolve('stopped'), { once: true }),
    )
    const outcome = await Promise.race([ended, stopped])
    clearTimeout(timer)
    await killRun(child.pid, runId)
    this.#running = undefined
    const exitCode = outcome === 'stopped' ? await ended : outcome
    removeTestDirectory(temporary)
    return { results, isTimedOut, exitCode, durationMs: performance.now() - startedMs, stderr }
  }

  /** Also ends a running test. Idempotent. */
  remove(): void {
    if (this.#running) killOnce(this.#running.pid, this.#running.runId)
    removeTestDirectory(this.#temporary)
    rmSync(this.root, { recursive: true, force: true })
  }
}

/** Kills the process group of a test and all other descendants. */
async function killRun(pid: number | undefined, runId: string): Promise<void> {
  // A process may have started another one during the search.
  for (let round = 0; round < 3 && killOnce(pid, runId) > 0; round++) await sleep(50)
}

/** Returns the number of killed processes. */
function killOnce(pid: number | undefined, runId: string): number {
  if (pid !== undefined) kill(-pid)
  const left = processesOf(runId)
  left.forEach(kill)
  return left.length
}

function processesOf(runId: string): number[] {
  const pids = readdirSync('/proc').map(Number).filter(Number.isInteger)
  return pids.filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`${RUN_VARIABLE}=${runId}`)
    } catch {
      // It has ended, or belongs to another user.
      return false
    }
  })
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}
