/** The command that `exec` runs: its process, the signals to it, and its replacement by another one with other variables. */
import { spawn } from 'node:child_process'
import { exitCodeOf, exitOf, startFaultOf } from '../../../supervisor/child-exit.ts'
import { CommandError } from '../../framework/command-shape.ts'
import { sendSignal } from '../../../supervisor/process-identity.ts'
import type { SignalForwarder } from '../../../supervisor/signal-forwarder.ts'
import { startWatchdog } from '../../../supervisor/watchdog.ts'

export interface ProgramOptions {
  readonly command: readonly [string, ...string[]]
  readonly signals: SignalForwarder
  readonly killTimeoutMs: number
}

export class Program {
  readonly #options: ProgramOptions
  #env: NodeJS.ProcessEnv
  #pid: number | undefined
  #isReplaced = false
  #killTimer: NodeJS.Timeout | undefined

  constructor(options: ProgramOptions, env: NodeJS.ProcessEnv) {
    this.#options = options
    this.#env = env
  }

  /** Resolves with the exit code when it has ended for good. Throws CommandError where it cannot be started. */
  async run(): Promise<number> {
    const { signals } = this.#options
    for (;;) {
      const exitCode = await this.#once()
      if (!this.#isReplaced || signals.stopped) return exitCode
      this.#isReplaced = false
    }
  }

  async #once(): Promise<number> {
    const { command, signals } = this.#options
    const [program, ...args] = command
    // detached: a session and a process group of its own, so that Ctrl-C reaches it once, through us.
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
    // What it has left behind has the old values, and would hold what its successor needs.
    sendSignal(-pid, 'SIGKILL')
    return exitCodeOf(exit)
  }

  /** Tells it that files have changed. */
  hangUp(): void {
    if (this.#pid !== undefined) sendSignal(this.#pid, 'SIGHUP')
  }

  /** Ends it, and begins it again with other variables. */
  replace(env: NodeJS.ProcessEnv): void {
    this.#env = env
    const pid = this.#pid
    if (pid === undefined || this.#isReplaced) return
    this.#isReplaced = true
    sendSignal(-pid, 'SIGTERM')
    this.#killTimer = setTimeout(() => sendSignal(-pid, 'SIGKILL'), this.#options.killTimeoutMs)
  }
}
