/**
 * The agent as a process: signals and exit. A start that fails or is interrupted by a signal undoes its steps and exits at once;
 * leaked handles must not keep the process alive, because systemd would wait for it.
 */
import { flushCompileCache } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AgentOptions } from '../cli/framework/services.ts'
import { type Running, startAgent } from './start-agent.ts'
import { Fault } from '../platform/errors.ts'

/** Time limit for a start to end after a signal: a step may wait for a disk. */
const START_END_MS = 10_000
/** Time limit for open handles after the stop. */
const EXIT_MS = 500

/** Runs an agent until a signal ends it; resolves with the exit code. */
export async function runAgent(options: AgentOptions, version: string): Promise<number> {
  let agent: Running | undefined
  const stopping = new AbortController()
  // Installed before the ready line, so an immediate signal is handled.
  const signaled = new Promise<void>((resolve) => {
    const stop = () => {
      if (stopping.signal.aborted) process.exit(1)
      stopping.abort()
      resolve()
    }
    process.on('SIGTERM', stop)
    process.on('SIGINT', stop)
  })
  process.on('SIGHUP', () => agent?.reload())
  try {
    const starting = startAgent(options, version, stopping.signal)
    agent = await Promise.race([starting, startTimeoutAfter(signaled)])
    // Node writes the compile cache at exit only. Without this, the next start of a killed process compiles everything again, for
    // three times the CPU time.
    flushCompileCache()
    await signaled
    await agent.stop()
    return 0
  } catch (error) {
    // An interrupted start has not failed.
    if (stopping.signal.aborted && error === stopping.signal.reason) return 0
    throw error
  } finally {
    // A process without open handles has exited by then.
    setTimeout(() => process.exit(), EXIT_MS).unref()
  }
}

async function startTimeoutAfter(signaled: Promise<void>): Promise<never> {
  await signaled
  await sleep(START_END_MS, undefined, { ref: false })
  throw new Fault('startup did not stop in time after the signal')
}
