/**
 * `alloc run -detach`: the same command line once more, as a process of its own that outlives us, and one message back
 * over an IPC channel that says whether the command has started.
 */
import { spawn } from 'node:child_process'
import type { CommandIo } from '../cli/framework/command-shape.ts'
import { CommandError } from '../cli/framework/command-shape.ts'

/** Tells the supervisor that somebody waits for its report. */
const MARK = 'OUTPOST_ALLOC_DETACHED'

export type StartReport = { readonly started: string } | { readonly failed: string }

/** The function that reports to the process that detached us; undefined when this is no such process. */
export function reporterToParent(env: NodeJS.ProcessEnv): ((report: StartReport) => void) | undefined {
  if (env[MARK] === undefined || !process.send) return undefined
  delete env[MARK] // not for the command that we run
  return (report) => {
    // Whoever waited may be gone; the command runs all the same.
    if (process.connected) process.send?.(report, undefined, {}, () => process.connected && process.disconnect())
  }
}

/**
 * Runs `outpost ARGS` as a process in a session of its own and waits for its report. Resolves to 0 once the command
 * has started, with its allocation ID on stdout. Throws CommandError.
 */
export async function detach(args: readonly string[], io: CommandIo): Promise<number> {
  const program = process.argv[1] ?? ''
  const child = spawn(process.execPath, [...process.execArgv, program, ...args], {
    detached: true,
    env: { ...io.env, [MARK]: '1' },
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  })
  const report = await new Promise<StartReport>((resolve) => {
    child.once('message', (message) => resolve(reportOf(message)))
    child.once('error', (error) => resolve({ failed: `cannot start the supervisor: ${error.message}` }))
    child.once('exit', () => resolve({ failed: 'the supervisor ended before the command started' }))
  })
  if (child.connected) child.disconnect()
  child.unref()
  if ('failed' in report) throw new CommandError(report.failed)
  io.out(`${report.started}\n`)
  return 0
}

function reportOf(message: unknown): StartReport {
  if (typeof message === 'object' && message !== null) {
    if ('started' in message && typeof message.started === 'string') return { started: message.started }
    if ('failed' in message && typeof message.failed === 'string') return { failed: message.failed }
  }
  return { failed: 'the supervisor sent a report that cannot be read' }
}
