/** Progress of the commands for DR replication: numbered and timed steps, and the wait until a secondary follows its primary. */
import { sleep } from '../../../../platform/clock.ts'
import { messageOf } from '../../../../platform/errors.ts'
import type { CoreAccess } from '../../../core/core-access.ts'
import { CommandError, type CommandIo } from '../../../framework/define-command.ts'
import { escapeLine } from '../../../framework/terminal-escapes.ts'
import type { JsonFields } from '../../../output/json.ts'
import { drStatus, peersOf } from './dr-access.ts'

/** Prints the result of a step with its number. */
export type StepReporter = (result: string) => void

export function stepReporter(io: CommandIo): StepReporter {
  let step = 0
  return (result) => io.err(`${++step}. ${result}\n`)
}

/** Steps of a procedure; prints start, duration and result of each. */
export class TimedSteps {
  readonly #print: (line: string) => void
  readonly #startedAtMs = performance.now()
  readonly signal: AbortSignal

  /** When `signal` aborts, the current step is abandoned and no further step starts. */
  constructor(print: (line: string) => void, signal: AbortSignal) {
    this.#print = print
    this.signal = signal
  }

  /** Rejects with the error of the step, or when the signal aborts. */
  async run<T>(work: () => Promise<T>, describe: (value: T) => string): Promise<T> {
    this.signal.throwIfAborted()
    return this.#timed(() => untilAborted(work(), this.signal), describe)
  }

  /** Waits without printing a step. Rejects as `run` does. */
  wait<T>(work: Promise<T>): Promise<T> {
    return untilAborted(work, this.signal)
  }

  /** A step that runs also after the signal has aborted. */
  async finish(work: () => Promise<void>, result: string): Promise<void> {
    await this.#timed(work, () => result)
  }

  async #timed<T>(work: () => Promise<T>, describe: (value: T) => string): Promise<T> {
    const fromMs = performance.now()
    const value = await work()
    const [at, took] = [fromMs - this.#startedAtMs, performance.now() - fromMs].map((ms) => `${Math.round(ms)} ms`)
    this.#print(`${at?.padStart(9)}  ${took?.padStart(8)}  ${describe(value)}\n`)
    return value
  }
}

async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const done = new AbortController()
  const aborted = new Promise<never>((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true, signal: done.signal })
  })
  try {
    return await Promise.race([work, aborted])
  } finally {
    done.abort()
  }
}

const POLL_MS = 200
/** Minimum interval between two progress lines. */
const PROGRESS_MS = 2000
/** The wait ends if the secondary reports the same problem for this long. */
const STALL_MS = 60_000

interface JoinProgress {
  readonly isFollowing: boolean
  readonly text: string
  /** Why it is not connected; empty if nothing prevents it. */
  readonly problem: string
  readonly primary: string
}

/**
 * Resolves with the address of the primary when the initial sync is complete and the secondary follows. Throws CommandError if the
 * secondary reports the same problem for `STALL_MS`; the secondary itself keeps retrying.
 */
export async function untilFollowing(core: CoreAccess, io: CommandIo): Promise<string> {
  let before = ''
  let printedMs = Number.NEGATIVE_INFINITY
  let changedMs = performance.now()
  for (;;) {
    const { isFollowing, primary, problem, text } = await progressOf(core)
    if (isFollowing) return primary
    const nowMs = performance.now()
    if (text !== before) changedMs = nowMs
    before = text
    if (problem !== '' && nowMs - changedMs > STALL_MS) {
      throw new CommandError(
        `${core.target.url.origin} does not follow its primary: ${problem}; the server keeps retrying, check "outpost operator dr status"`,
      )
    }
    if (text !== '' && changedMs >= printedMs && nowMs - printedMs > PROGRESS_MS) {
      printedMs = nowMs
      io.err(`   ${text}\n`)
    }
    await sleep(POLL_MS)
  }
}

async function progressOf(core: CoreAccess): Promise<JoinProgress> {
  try {
    const { fields } = await drStatus(core)
    const [primary] = peersOf(fields)
    const isFollowing = fields.text('mode') === 'secondary' && fields.text('state') === 'stream-wals'
    const problem = escapeLine(fields.text('trouble'))
    return { isFollowing, text: progressText(fields, problem), problem, primary: primary?.text('api_address') ?? '' }
  } catch (error) {
    const problem = messageOf(error)
    return { isFollowing: false, text: problem, problem, primary: '' }
  }
}

function progressText(fields: JsonFields, problem: string): string {
  if (problem !== '') return problem
  const state = fields.text('state')
  const progress = fields.under('merkle_sync_progress')
  if (state === 'merkle-sync') {
    return `copied ${progress.number('sync_progress')} of ${progress.number('sync_total_keys')} entries`
  }
  if (state === 'merkle-diff') return 'comparing entries with the primary'
  return state === 'stream-wals' ? 'receiving commits since the start of the sync' : ''
}
