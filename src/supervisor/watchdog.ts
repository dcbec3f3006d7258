/**
 * What ends the command when its supervisor is killed with SIGKILL.
 *
 * Nobody can handle SIGKILL, and without its supervisor a command would run on unseen: its output goes nowhere and no
 * manifest tells of its end. A shell of about one megabyte therefore waits in a session of its own for the end of a
 * pipe that only the supervisor holds. When the pipe ends without the word `done`, it sends SIGTERM to the command's
 * process group and, five seconds later, SIGKILL. Where no shell can be started, the command still gets SIGPIPE at its
 * next write to the broken pipe.
 */
import { spawn } from 'node:child_process'

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
  /** The command is over: the watchdog leaves without touching anything. */
  dismiss(): void
}

/** Watches over the process group `groupId` as long as this process lives. */
export function startWatchdog(groupId: number): Watchdog {
  const shell = spawn('/bin/sh', ['-c', SCRIPT, 'outpost-watchdog', String(groupId)], {
    cwd: '/',
    detached: true,
    env: { PATH: '/usr/bin:/bin' },
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  shell.on('error', () => undefined) // no shell: SIGPIPE has to do
  shell.stdin.on('error', () => undefined)
  shell.unref()
  return { dismiss: () => shell.stdin.end('done\n') }
}
