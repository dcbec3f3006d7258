/** `outpost agent -dev`: a demo allocation that writes a log, and the banner with example commands. */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

const SCRIPT = `i=0; while :; do i=$((i+1)); echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) demo line $i"; sleep 1; done`
export const DEMO_TASK = 'demo'
/** A machine with a busy disk may need seconds. */
const READY_MS = 30_000

export interface Demo {
  readonly allocId: string
  /** False if the demo has exited or did not start in time. */
  readonly isReady: boolean
  stop(): Promise<void>
}

/**
 * Runs the demo under its own supervisor. Resolves when `isReady` returns true, or when the demo has failed; the supervisor reports the
 * cause on stderr.
 */
export async function startDemo(dataDir: string, isReady: (allocId: string) => boolean): Promise<Demo> {
  const allocId = randomUUID()
  const args = ['alloc', 'run', '-id', allocId, '-name', 'demo.demo[0]', '-job', 'demo', '-task', DEMO_TASK]
  const program = process.argv[1] ?? ''
  const child = spawn(process.execPath, [program, ...args, '-data-dir', dataDir, '--', 'sh', '-c', SCRIPT], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const until = performance.now() + READY_MS
  while (!isReady(allocId) && !hasEnded(child) && performance.now() < until) await sleep(20)
  return { allocId, isReady: isReady(allocId), stop: () => stopChild(child) }
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return
  const ended = new Promise((resolve) => child.once('exit', resolve))
  child.kill('SIGTERM')
  await ended
}

/** Prints the address of the agent and example commands. */
export function printBanner({ url, token, demo }: { url: string; token: string; demo: Demo | undefined }): void {
  const lines = ['', `    URL:   ${url}`, `    Token: ${token}`, '']
  if (demo && !demo.isReady) lines.push('    The demo task did not start.', '')
  else if (demo) {
    const { allocId } = demo
    lines.push(
      '    Follow the log of the demo task, list its files, show its resource usage:',
      '',
      `      curl -N '${url}/v1/client/fs/logs/${allocId}?task=${DEMO_TASK}&type=stdout&follow=true&plain=true'`,
      `      curl '${url}/v1/client/fs/ls/${allocId}?path=alloc/logs&pretty'`,
      `      curl '${url}/v1/client/allocation/${allocId}/stats?pretty'`,
      '',
    )
  }
  process.stdout.write(`${lines.join('\n')}\n`)
}
