/**
 * Passes the supervisor's signals on to its command.
 *
 * SIGTERM and SIGINT mean stop: they go to the whole process group, and what has not ended after the kill timeout, or
 * at a second such signal, is killed. SIGQUIT goes to the group too. SIGHUP, SIGUSR1 and SIGUSR2 go to the command
 * alone, because they mean something to it and death to the helpers it started. What arrives before the command has
 * started is passed on once it has.
 */
import { sendSignal } from './process-identity.ts'

const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const
const GROUP_SIGNALS: ReadonlySet<NodeJS.Signals> = new Set(['SIGTERM', 'SIGINT', 'SIGQUIT'])
const FORWARDED = [...STOP_SIGNALS, 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const
/** A timer that is longer fires at once. */
const TIMER_MS_MAX = 2 ** 31 - 1

export class SignalForwarder {
  readonly #killTimeoutMs: number
  readonly #listener = (signal: NodeJS.Signals) => this.#receive(signal)
  /** What came before there was a command. */
  readonly #early: NodeJS.Signals[] = []
  #onStop: () => void = () => undefined
  #pid: number | undefined
  #killTimer: NodeJS.Timeout | undefined
  #stopped = false

  /** From here on none of the signals ends this process. */
  constructor(killTimeoutMs: number) {
    this.#killTimeoutMs = Math.min(killTimeoutMs, TIMER_MS_MAX)
    for (const signal of FORWARDED) process.on(signal, this.#listener)
    process.on('SIGXFSZ', ignore)
  }

  /** True once somebody asked for the end of the command. */
  get stopped(): boolean {
    return this.#stopped
  }

  /** The command runs, as the leader of its process group. `onStop` is called once, when it was asked to end. */
  attach(pid: number, onStop: () => void): void {
    this.#pid = pid
    this.#onStop = onStop
    for (const signal of this.#early.splice(0)) this.#receive(signal)
  }

  /** The command has ended for good. Signals are ignored until `detach`, so that none ends what is left to do. */
  release(): void {
    clearTimeout(this.#killTimer)
    this.#pid = undefined
  }

  /** From here on the signals have their default effect. */
  detach(): void {
    clearTimeout(this.#killTimer)
    for (const signal of FORWARDED) process.off(signal, this.#listener)
    process.off('SIGXFSZ', ignore)
  }

  #receive(signal: NodeJS.Signals): void {
    const pid = this.#pid
    if (pid === undefined) {
      this.#early.push(signal)
      return
    }
    const isStop = STOP_SIGNALS.some((name) => name === signal)
    if (isStop && this.#stopped) {
      sendSignal(-pid, 'SIGKILL')
      return
    }
    sendSignal(GROUP_SIGNALS.has(signal) ? -pid : pid, signal)
    if (!isStop) return
    this.#stopped = true
    this.#killTimer = setTimeout(() => sendSignal(-pid, 'SIGKILL'), this.#killTimeoutMs)
    this.#onStop()
  }
}

/** A log beyond the limit on file sizes is then a write that fails, and not the end of this process. */
function ignore(): void {}
