/**
 * Forwards the signals of the supervisor to its command.
 *
 * SIGTERM and SIGINT stop the command: they are forwarded to the process group, which is killed after the kill timeout or at a second
 * such signal. SIGQUIT is forwarded to the group as well. SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to the command only, because they
 * would kill its child processes. Signals that arrive before the command has started are forwarded after the start.
 */
import { sendSignal } from './process-identity.ts'

const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const
const GROUP_SIGNALS: ReadonlySet<NodeJS.Signals> = new Set(['SIGTERM', 'SIGINT', 'SIGQUIT'])
const FORWARDED = [...STOP_SIGNALS, 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const
/** Longer timers fire at once. */
const TIMER_MS_MAX = 2 ** 31 - 1

export class SignalForwarder {
  readonly #killTimeoutMs: number
  readonly #listener = (signal: NodeJS.Signals) => this.#receive(signal)
  /** Signals before the start of the command. */
  readonly #early: NodeJS.Signals[] = []
  #onStop: () => void = () => undefined
  #pid: number | undefined
  #killTimer: NodeJS.Timeout | undefined
  #isStopping = false

  /** From now on, none of the signals terminates this process. */
  constructor(killTimeoutMs: number) {
    this.#killTimeoutMs = Math.min(killTimeoutMs, TIMER_MS_MAX)
    for (const signal of FORWARDED) process.on(signal, this.#listener)
    process.on('SIGXFSZ', ignore)
  }

  /** True after a stop was requested. */
  get isStopping(): boolean {
    return this.#isStopping
  }

  /** The command runs as the leader of its process group. `onStop` is called once, at the first stop signal. */
  attach(pid: number, onStop: () => void): void {
    this.#pid = pid
    this.#onStop = onStop
    for (const signal of this.#early.splice(0)) this.#receive(signal)
  }

  /** The command has exited. Signals are ignored until `detach`, so that the supervisor can finish. */
  release(): void {
    clearTimeout(this.#killTimer)
    this.#pid = undefined
  }

  /** From now on, the signals have their default effect. */
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
    if (isStop && this.#isStopping) {
      sendSignal(-pid, 'SIGKILL')
      return
    }
    sendSignal(GROUP_SIGNALS.has(signal) ? -pid : pid, signal)
    if (!isStop) return
    this.#isStopping = true
    this.#killTimer = setTimeout(() => sendSignal(-pid, 'SIGKILL'), this.#killTimeoutMs)
    this.#onStop()
  }
}

/** SIGXFSZ: a log above the file size limit is a failed write and does not terminate this process. */
function ignore(): void {}
