/**
 * Notifications to systemd (sd_notify(3)): ready, reloading, stopping, status text, and the watchdog.
 *
 * Node has no Unix datagram sockets, so `systemd-notify` sends the messages. A fork of a process of 250 MB blocks the event loop for
 * 8 ms; so one shell is started early and runs `systemd-notify` for each line from a pipe. Messages keep their order, and the
 * shell exits with the pipe, however this process ends.
 *
 * The watchdog is notified at half of its interval, and only after a connection to the own address has reached the listener: a blocked
 * event loop, a closed listener and exhausted descriptors all cause a restart. If such a connection fails even at the start (a
 * firewall on loopback), one warning is logged and only the event loop is watched, so a packet filter causes no restart loop.
 *
 * A service manager that cannot be notified is logged once; the process continues to serve.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { type Logger, LogOnce } from '../platform/log.ts'

/** State of the running daemon. */
export interface DaemonStatus {
  /** One line for `systemctl status`. */
  status(): string
  /** True if a connection to the own address arrives within this time. */
  answers(withinMs: number): Promise<boolean>
}

export interface ServiceManager {
  /** Reports ready and starts the watchdog. */
  ready(daemon: DaemonStatus): void
  /** Reports the reload before and after `reload`, which returns the error, if any. */
  reloading(reload: () => string | undefined): void
  /** Sends the status text again. */
  changed(): void
  stopping(): void
  /** Ends all notifications. */
  close(): void
}

/** Without a service manager. */
const ALONE: ServiceManager = {
  ready: () => undefined,
  reloading: (reload) => void reload(),
  changed: () => undefined,
  stopping: () => undefined,
  close: () => undefined,
}

const LISTENER_UNREACHABLE = 'this process cannot reach its own listener, watchdog not notified'
const MISSING = 127
/** One message for each line, assignments separated by tabs. Exits with the pipe; ignores signals, which are for the daemon. */
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
 * The service manager of NOTIFY_SOCKET and WATCHDOG_USEC. Removes these variables from `env`, so child processes cannot send
 * notifications.
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
  /** Watchdog timeout; 0: none. */
  readonly limitMs: number
  readonly logger: Logger
}

class Systemd implements ServiceManager {
  readonly #options: SystemdOptions
  #shell: ChildProcessByStdio<Writable, null, Readable> | undefined
  #daemon: DaemonStatus | undefined
  #reloadFault: string | undefined
  #timer: NodeJS.Timeout | undefined
  #closed = false
  /** Warnings that were logged and are still true. */
  readonly #logged = new LogOnce()

  constructor(options: SystemdOptions) {
    this.#options = options
    this.#startShell()
  }

  ready(daemon: DaemonStatus): void {
    this.#daemon = daemon
    this.#send('READY=1', this.#status())
    if (this.#options.limitMs > 0) void this.#startTicking(daemon)
  }

  reloading(reload: () => string | undefined): void {
    // systemd matches the notification to its reload request by this time; hrtime is CLOCK_MONOTONIC.
    this.#send('RELOADING=1', `MONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`)
    this.#reloadFault = reload()
    this.#send('READY=1', this.#status())
  }

  changed(): void {
    if (this.#daemon) this.#send(this.#status())
  }

  stopping(): void {
    clearTimeout(this.#timer)
    this.#daemon = undefined
    this.#send('STOPPING=1', 'STATUS=stopping: finishing requests in progress')
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#shell?.stdin.end()
  }

  async #startTicking(daemon: DaemonStatus): Promise<void> {
    const periodMs = this.#options.limitMs / 2
    const reachable = await daemon.answers(periodMs / 2)
    if (!reachable) {
      this.#options.logger.warn('this process cannot reach its own address, the watchdog checks the event loop only')
    }
    const tick = async () => {
      const lives = !reachable || (await daemon.answers(periodMs / 2))
      if (this.#daemon === undefined) return
      if (lives) this.#send('WATCHDOG=1', this.#status())
      else this.#warnOnce(LISTENER_UNREACHABLE)
      if (lives) this.#logged.forget(LISTENER_UNREACHABLE)
      // Sooner after a failure, so that the next success is in time.
      this.#timer = setTimeout(() => void tick(), lives ? periodMs : Math.min(1000, periodMs / 4))
      this.#timer.unref()
    }
    await tick()
  }

  #status(): string {
    const fault = this.#reloadFault === undefined ? '' : `; configuration not reloaded: ${this.#reloadFault}`
    return `STATUS=${this.#daemon?.status() ?? ''}${fault}`
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
    shell.on('error', (error) => this.#disable(`no shell: ${error.message}`))
    shell.on('exit', (code) => {
      if (code === MISSING) this.#disable('systemd-notify not found')
      else if (!this.#closed) this.#warnOnce('notification shell exited, restarting it')
      this.#shell = undefined
    })
    shell.stdin.on('error', () => undefined) // The event `exit` reports it.
    shell.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#warnOnce(`systemd-notify: ${text.trim().slice(0, 300)}`)
    })
    // Neither the shell nor its pipe keeps the process alive.
    shell.unref()
    if ('unref' in shell.stderr && typeof shell.stderr.unref === 'function') shell.stderr.unref()
    this.#shell = shell
    return shell
  }

  #disable(why: string): void {
    if (!this.#closed) this.#options.logger.warn(`systemd notifications disabled: ${why}`)
    this.close()
  }

  #warnOnce(message: string): void {
    if (this.#logged.due(message) > 0) this.#options.logger.warn(message)
  }
}
