/** Processes that `alloc run` and `exec` start: exit codes, start errors, environment, watchdog. */
import { type ChildProcess, spawn } from 'node:child_process'
import { constants as osConstants } from 'node:os'
import { errnoOf, messageOf } from '../platform/errors.ts'

export interface ProcessExit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** Rejects with the system error if the process could not be started. */
export function exitOf(child: ChildProcess): Promise<ProcessExit> {
  const exited = new Promise<ProcessExit>((resolve, reject) => {
    child.once('exit', (code, signal) => resolve({ code, signal }))
    child.on('error', (error) => {
      if (child.pid === undefined) reject(error)
    })
  })
  exited.catch(() => undefined) // awaited later
  return exited
}

/** The exit code of a shell: 128 plus the signal number for a signal. */
export function exitCodeOf(exit: ProcessExit): number {
  if (exit.signal === null) return exit.code ?? 1
  return 128 + osConstants.signals[exit.signal]
}

/** Why a program could not be started, with the exit code of a shell: 127 not found, 126 not executable. */
export function startFaultOf(program: string, error: unknown): { readonly exitCode: number; readonly text: string } {
  const reasons: Readonly<Record<string, string>> = {
    ENOENT: program.includes('/') ? 'no such file' : 'not found in PATH',
    EACCES: 'not executable, run chmod +x',
    ENOEXEC: 'neither a binary nor a script with a #! line',
  }
  const code = errnoOf(error) ?? ''
  const text = `cannot start ${JSON.stringify(program)}: ${reasons[code] ?? messageOf(error)}`
  return { exitCode: code === 'ENOENT' ? 127 : 126, text }
}

const SCRIPT = `
trap '' HUP INT QUIT TERM
read -r word && [ "$word" = done ] && exit 0
kill -s TERM -- "-$1" || exit 0
for second in 1 2 3 4 5; do
  sleep 1
  kill -s 0 -- "-$1" || exit 0
done
kill -s KILL -- "-$1"
`

export interface Watchdog {
  /** Ends the watchdog after the command has exited. */
  dismiss(): void
}

/**
 * Stops the process group if this process is killed with SIGKILL. Otherwise its command would continue without output and without a
 * manifest. A shell of about 1 MB waits in its own session for the end of a pipe that only this process holds. When the pipe ends without
 * the word `done`, it sends SIGTERM to the process group and SIGKILL five seconds later. If no shell can be started, the command still
 * receives SIGPIPE at its next write.
 */
export function startWatchdog(groupId: number): Watchdog {
  const shell = spawn('/bin/sh', ['-c', SCRIPT, 'outpost-watchdog', String(groupId)], {
    cwd: '/',
    detached: true,
    env: { PATH: '/usr/bin:/bin' },
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  shell.on('error', () => undefined) // no shell: only SIGPIPE remains
  shell.stdin.on('error', () => undefined)
  shell.unref()
  return { dismiss: () => shell.stdin.end('done\n') }
}

/** Names of the variables that the launcher has set. */
const LAUNCHER_VARIABLES = 'OUTPOST_LAUNCHER_SET'

/** A copy without the variables that `bin/outpost` sets for Node, such as its code cache. */
export function withoutLauncherVariables(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const rest = { ...env }
  for (const name of env[LAUNCHER_VARIABLES]?.split(' ') ?? []) delete rest[name]
  delete rest[LAUNCHER_VARIABLES]
  return rest
}
