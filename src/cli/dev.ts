/**
 * What `outpost agent -dev` adds for a newcomer: a demo allocation that really logs, and lines to try.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

const SCRIPT = `i=0; while :; do i=$((i+1)); echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) demo line $i"; sleep 1; done`
const READY_MS = 3000

export interface Demo {
  readonly allocId: string
  stop(): Promise<void>
}

/** Runs the demo under its own supervisor, as any allocation; resolves when the agent knows it (or after 3 s). */
export async function startDemo(dataDir: string, isReady: (allocId: string) => boolean): Promise<Demo> {
  const allocId = randomUUID()
  const args = ['alloc', 'run', '-id', allocId, '-name', 'demo.demo[0]', '-job', 'demo', '-task', 'demo']
  const program = process.argv[1] ?? ''
  const child = spawn(process.execPath, [program, ...args, '-data-dir', dataDir, '--', 'sh', '-c', SCRIPT], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  for (const until = performance.now() + READY_MS; performance.now() < until && !isReady(allocId); ) await sleep(20)
  return { allocId, stop: () => stopChild(child) }
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = new Promise((resolve) => child.once('exit', resolve))
  child.kill('SIGTERM')
  await ended
}

/** Prints where the agent is and what to try. */
export function printBanner(shown: { url: string; token: string; allocId: string | undefined }): void {
  const lines = ['', `    URL:   ${shown.url}`, `    Token: ${shown.token}`, '']
  if (shown.allocId !== undefined) {
    const { url, allocId } = shown
    lines.push(
      '    Follow the log of the demo task, list its files, see what it uses:',
      '',
      `      curl -N '${url}/v1/client/fs/logs/${allocId}?task=demo&type=stdout&follow=true&plain=true'`,
      `      curl '${url}/v1/client/fs/ls/${allocId}?path=alloc/logs&pretty'`,
      `      curl '${url}/v1/client/allocation/${allocId}/stats?pretty'`,
      '',
    )
  }
  process.stdout.write(`${lines.join('\n')}\n`)
}
