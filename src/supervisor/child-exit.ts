/** How a command that we started has ended, or why it was not started, in the words of a shell. */
import type { ChildProcess } from 'node:child_process'
import { constants as osConstants } from 'node:os'
import { errnoOf, messageOf } from '../platform/errors.ts'

export interface Exit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** Rejects with the system's error when the command could not be started. */
export function exitOf(child: ChildProcess): Promise<Exit> {
  const exited = new Promise<Exit>((resolve, reject) => {
    child.once('exit', (code, signal) => resolve({ code, signal }))
    child.on('error', (error) => {
      if (child.pid === undefined) reject(error)
    })
  })
  exited.catch(() => undefined) // awaited later, by whoever looks at the process ID first
  return exited
}

export function exitCodeOf(exit: Exit): number {
  if (exit.signal === null) return exit.code ?? 1
  return 128 + osConstants.signals[exit.signal]
}

/** Why a program could not be started, and what shells exit with then: 127 not found, 126 found but not to be executed. */
export function startFaultOf(program: string, error: unknown): { readonly exitCode: number; readonly text: string } {
  const reasons: Readonly<Record<string, string>> = {
    ENOENT: program.includes('/') ? 'there is no such file' : 'there is no such program in PATH',
    EACCES: 'it is not executable (chmod +x makes it so)',
    ENOEXEC: 'it is neither a program nor a script with a #! line',
  }
  const code = errnoOf(error) ?? ''
  const text = `cannot start ${JSON.stringify(program)}: ${reasons[code] ?? messageOf(error)}`
  return { exitCode: code === 'ENOENT' ? 127 : 126, text }
}
