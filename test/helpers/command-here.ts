/** Commands of the program in the test's own process: a process of their own costs a tenth of a second of CPU each. */
import { isatty } from 'node:tty'
import { runCommand } from '../../src/cli/command.ts'
import type { Finished } from '../cli/outpost-process.ts'

/** Commands that write to the descriptor 1 themselves, set signals, or work on processes. */
const NEEDS_PROCESS = /^(?:agent|alloc|logs|fs|kv (?:export|import|watch)|operator (?:snapshot|dr drill))\b/

/** True for a command line that is the same in this process: it reads no standard input and writes only what it is told. */
export function runsHere(args: readonly string[], input: string): boolean {
  if (input !== '' || isatty(0) || isatty(1)) return false
  return !NEEDS_PROCESS.test(args.join(' ')) && !args.some((word) => word === '-' || word.endsWith('=-'))
}

async function policyChecker() {
  return (await import('../../src/secrets/policies/policy.ts')).checkPolicy
}

/** What a process of the program would have ended with. `env` is all of its environment. */
export async function runHere(args: readonly string[], env: NodeJS.ProcessEnv): Promise<Finished> {
  let [stdout, stderr] = ['', '']
  const io = {
    out: (text: string) => void (stdout += text),
    err: (text: string) => void (stderr += text),
    env,
  }
  const code = await runCommand(args, io, { policyChecker })
  return { code, signal: null, stdout, stderr }
}
