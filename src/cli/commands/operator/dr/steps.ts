/** Steps of a walk, a line each: when it began, what it took, what it found. */
import type { CommandIo } from '../../../framework/command-shape.ts'

/** Prints a numbered line about a step. */
export type Say = (found: string) => void

export function sayer(io: CommandIo): Say {
  let step = 0
  return (found) => io.err(`${++step}. ${found}\n`)
}

export class Steps {
  readonly #print: (line: string) => void
  readonly #beganAtMs = performance.now()
  readonly signal: AbortSignal

  /** `signal` ends the walk: the step under way is not waited for, and no other one begins. */
  constructor(print: (line: string) => void, signal: AbortSignal) {
    this.#print = print
    this.signal = signal
  }

  /** Rejects with what the step rejects with, and when the walk is ended. */
  async run<T>(work: () => Promise<T>, found: (value: T) => string): Promise<T> {
    this.signal.throwIfAborted()
    return this.#timed(() => untilAborted(work(), this.signal), found)
  }

  /** For what is waited for without being a step. Rejects as `run` does. */
  wait<T>(work: Promise<T>): Promise<T> {
    return untilAborted(work, this.signal)
  }

  /** A step that is done also when the walk was ended. */
  async finish(work: () => Promise<void>, found: string): Promise<void> {
    await this.#timed(work, () => found)
  }

  async #timed<T>(work: () => Promise<T>, found: (value: T) => string): Promise<T> {
    const fromMs = performance.now()
    const value = await work()
    const [at, took] = [fromMs - this.#beganAtMs, performance.now() - fromMs].map((ms) => `${Math.round(ms)} ms`)
    this.#print(`${at?.padStart(9)}  ${took?.padStart(8)}  ${found(value)}\n`)
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
