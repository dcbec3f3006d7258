/**
 * The daemon as a service of systemd (sd_notify(3)): ready, reloading, stopping, one line of status, and the watchdog.
 *
 * Node has no datagram sockets of the Unix kind, so the messages are sent by `systemd-notify`. A process of 250 MB takes
 * 8 ms to start another one, with everything standing still meanwhile; so a shell of about one megabyte is started once,
 * while we are small, and runs `systemd-notify` for each line that it reads from a pipe. Messages arrive in the order in
 * which they were sent, and the shell ends with the pipe: with us, however we end.
 *
 * The watchdog is told that we live at half of its time, and only after a connection to our own address has reached the
 * listener: a blocked event loop, a listener that is gone and descriptors that are used up all end in silence, and then
 * in a restart. Where such a connection cannot be made even at the start (a firewall on the loopback device), that
 * is said once, and the event loop alone is watched: no host may be restarted for ever for its packet filter.
 *
 * A service manager that cannot be told is said once in the log and is no reason to stop serving.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { type Logger, LogOnce } from '../platform/log.ts'

/** What there is to tell about the running daemon. */
export interface Vitals {
  /** One line for a person who asks `systemctl status`. */
  status(): string
  /** Whether a connection to our own address arrives within this time. */
  answers(withinMs: number): Promise<boolean>
}

export interface ServiceManager {
  /** From here on the watchdog is served. */
  ready(vitals: Vitals): void
  /** Says that we reload around `reload`, which returns what went wrong, if anything. */
  reloading(reload: () => string | undefined): void
  /** How the daemon is has changed: the line of status is said again. */
  changed(): void
  stopping(): void
  /** Nothing is told any more. */
  close(): void
}

/** Without a service manager: does the work and tells nobody. */
const ALONE: ServiceManager = {
  ready: () => undefined,
  reloading: (reload) => void reload(),
  changed: () => undefined,
  stopping: () => undefined,
  close: () => undefined,
}

const UNREACHED = 'no connection arrives at our own listener: systemd is not told that we live'
const MISSING = 127
/** One message a line, its assignments separated by tabs. Ends when the pipe does; signals are for the daemon. */
const SCRIPT = `
trap '' HUP INT QUIT TERM
command -v systemd-notify >/dev/null || exit ${MISSING}
set -f
while IFS= read -r message; do
  IFS='\t'
  set -- $message
  systemd-notify "$@"
done
`

/**
 * The service manager that `env` names, by NOTIFY_SOCKET and WATCHDOG_USEC. Takes those variables out of `env`: what we
 * start must not speak for us.
 */
export function serviceManagerOf(env: NodeJS.ProcessEnv, logger: Logger): ServiceManager {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: watchdogUs, WATCHDOG_PID: watchdogPid } = env
  for (const name of ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID']) delete env[name]
  if (socket === undefined || socket === '') return ALONE
  const watched = watchdogPid === undefined || Number(watchdogPid) === process.pid
  const limitMs = watched ? Number(watchdogUs ?? 0) / 1000 : 0
  return new Systemd({ env: { PATH: env['PATH'], NOTIFY_SOCKET: socket }, limitMs, logger })
}

interface SystemdOptions {
  readonly env: NodeJS.ProcessEnv
  /** After this much silence systemd ends us; 0 means never. */
  readonly limitMs: number
  readonly logger: Logger
}

class Systemd implements ServiceManager {
  readonly #options: SystemdOptions
  #shell: ChildProcessByStdio<Writable, null, Readable> | undefined
  #vitals: Vitals | undefined
  #reloadFault: string | undefined
  #timer: NodeJS.Timeout | undefined
  #closed = false
  /** What has been complained about and has not been well since. */
  readonly #said = new LogOnce()

  constructor(options: SystemdOptions) {
    this.#options = options
    this.#startShell()
  }

  ready(vitals: Vitals): void {
    this.#vitals = vitals
    this.#send('READY=1', this.#status())
    if (this.#options.limitMs > 0) void this.#startTicking(vitals)
  }

  reloading(reload: () => string | undefined): void {
    // systemd tells by the time whether this belongs to the reload that it asked for; Node's clock is the one it means.
    this.#send('RELOADING=1', `MONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`)
    this.#reloadFault = reload()
    this.#send('READY=1', this.#status())
  }

  changed(): void {
    if (this.#vitals) this.#send(this.#status())
  }

  stopping(): void {
    clearTimeout(this.#timer)
    this.#vitals = undefined
    this.#send('STOPPING=1', 'STATUS=stopping: answers under way are finished')
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#shell?.stdin.end()
  }

  async #startTicking(vitals: Vitals): Promise<void> {
    const periodMs = this.#options.limitMs / 2
    const reachable = await vitals.answers(periodMs / 2)
    if (!reachable) {
      this.#options.logger.warn(
        'this agent does not reach its own address: the watchdog watches the event loop only, not the listener',
      )
    }
    const tick = async () => {
      const lives = !reachable || (await vitals.answers(periodMs / 2))
      if (this.#vitals === undefined) return
      if (lives) this.#send('WATCHDOG=1', this.#status())
      else this.#complain(UNREACHED)
      if (lives) this.#said.forget(UNREACHED)
      // After a failure sooner: the next success must still be in time.
      this.#timer = setTimeout(() => void tick(), lives ? periodMs : Math.min(1000, periodMs / 4))
      this.#timer.unref()
    }
    await tick()
  }

  #status(): string {
    const fault = this.#reloadFault === undefined ? '' : `; configuration not reloaded: ${this.#reloadFault}`
    return `STATUS=${this.#vitals?.status() ?? ''}${fault}`
  }

  #send(...assignments: readonly string[]): void {
    if (this.#closed) return
    const shell = this.#shell ?? this.#startShell()
    shell.stdin.write(`${assignments.map((text) => text.replaceAll(/\s+/g, ' ')).join('\t')}\n`)
  }

  #startShell() {
    const { env } = this.#options
    const shell = spawn('/bin/sh', ['-c', SCRIPT, 'outpost-notify'], {
      cwd: '/',
      env,
      stdio: ['pipe', 'ignore', 'pipe'],
    })
    shell.on('error', (error) => this.#giveUp(`no shell: ${error.message}`))
    shell.on('exit', (code) => {
      if (code === MISSING) this.#giveUp('there is no program systemd-notify')
      else if (!this.#closed) this.#complain('the shell that tells systemd how we are has ended, it is started again')
      this.#shell = undefined
    })
    shell.stdin.on('error', () => undefined) // it has ended: `exit` says so
    shell.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#complain(`systemd-notify: ${text.trim().slice(0, 300)}`)
    })
    // Neither it nor its pipe keeps us from ending.
    shell.unref()
    if ('unref' in shell.stderr && typeof shell.stderr.unref === 'function') shell.stderr.unref()
    this.#shell = shell
    return shell
  }

  #giveUp(why: string): void {
    if (!this.#closed) this.#options.logger.warn(`systemd is not told how this agent is: ${why}`)
    this.close()
  }

  #complain(message: string): void {
    if (this.#said.due(message) > 0) this.#options.logger.warn(message)
  }
}
