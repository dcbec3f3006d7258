/** The process of `exec`: start, signals, and restart with a new environment. */
import { spawn } from 'node:child_process'
import { exitCodeOf, exitOf, startFaultOf, startWatchdog } from '../../../supervisor/child-process.ts'
import { CommandError } from '../../framework/define-command.ts'
import { sendSignal } from '../../../supervisor/process-identity.ts'
import type { SignalForwarder } from '../../../supervisor/signal-forwarder.ts'

export interface ProgramOptions {
  readonly command: readonly [string, ...string[]]
  readonly signals: SignalForwarder
  readonly killTimeoutMs: number
}

export class Program {
  readonly #options: ProgramOptions
  #env: NodeJS.ProcessEnv
  #pid: number | undefined
  #isRestarting = false
  #killTimer: NodeJS.Timeout | undefined

  constructor(options: ProgramOptions, env: NodeJS.ProcessEnv) {
    this.#options = options
    this.#env = env
  }

  /** Resolves with the exit code of the last process. Throws CommandError if the program cannot be started. */
  async run(): Promise<number> {
    const { signals } = this.#options
    for (;;) {
      const exitCode = await this.#once()
      if (!this.#isRestarting || signals.isStopping) return exitCode
      this.#isRestarting = false
    }
  }

  async #once(): Promise<number> {
    const { command, signals } = this.#options
    const [program, ...args] = command
    // detached: own session and process group, so that Ctrl-C reaches the program once, through the forwarder.
    const child = spawn(program, args, { detached: true, env: this.#env, stdio: 'inherit' })
    const exited = exitOf(child)
    const { pid } = child
    if (pid === undefined) {
      const { exitCode, text } = startFaultOf(program, await exited.catch((error: unknown) => error))
      throw new CommandError(text, exitCode)
    }
    const watchdog = startWatchdog(pid)
    this.#pid = pid
    signals.attach(pid, () => undefined)
    const exit = await exited
    this.#pid = undefined
    clearTimeout(this.#killTimer)
    watchdog.dismiss()
    // Remaining processes have the old values and may hold ports or locks that the next process needs.
    sendSignal(-pid, 'SIGKILL')
    return exitCodeOf(exit)
  }

  /** Sends SIGHUP after its files have changed. */
  hangUp(): void {
    if (this.#pid !== undefined) sendSignal(this.#pid, 'SIGHUP')
  }

  /** Stops the process and starts it again with another environment. */
  restart(env: NodeJS.ProcessEnv): void {
    this.#env = env
    const pid = this.#pid
    if (pid === undefined || this.#isRestarting) return
    this.#isRestarting = true
    sendSignal(-pid, 'SIGTERM')
    this.#killTimer = setTimeout(() => sendSignal(-pid, 'SIGKILL'), this.#options.killTimeoutMs)
  }
}
