/**
 * The agent as a process: its signals and its end. A start that fails, or is ended by a signal, undoes what it had begun
 * and ends the process at once; nothing that was forgotten may keep it alive, or systemd would wait for it in vain.
 */
import { flushCompileCache } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AgentOptions } from '../cli/framework/services.ts'
import { type Running, startAgent } from './daemon.ts'
import { Fault } from '../platform/errors.ts'

/** For a start that is under way to come to its end after a signal: a step may wait for a disk. */
const START_END_MS = 10_000
/** After the last word is said, for what is still open. */
const EXIT_MS = 500

/** Runs an agent until a signal ends it; resolves with the exit code. */
export async function runAgent(options: AgentOptions, version: string): Promise<number> {
  let agent: Running | undefined
  const stopping = new AbortController()
  // In force before anybody is told that we are ready: a signal that comes at once is heard too.
  const asked = new Promise<void>((resolve) => {
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
    agent = await Promise.race([starting, tooLongAfter(asked)])
    // Node saves what it has compiled at its exit, which a process that is killed does not come to: its next start would
    // strip and compile everything again, for three times the processor time.
    flushCompileCache()
    await asked
    await agent.stop()
    return 0
  } catch (error) {
    // A start that was ended on demand has not failed.
    if (stopping.signal.aborted && error === stopping.signal.reason) return 0
    throw error
  } finally {
    // A process that has nothing left to do has ended by then.
    setTimeout(() => process.exit(), EXIT_MS).unref()
  }
}

async function tooLongAfter(asked: Promise<void>): Promise<never> {
  await asked
  await sleep(START_END_MS, undefined, { ref: false })
  throw new Fault('a step of the start did not end in time after the signal')
}
