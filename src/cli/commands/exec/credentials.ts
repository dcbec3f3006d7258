/**
 * Keeps the credentials of `exec` from the command that it runs.
 *
 * A process of the same user can read `/proc/PID/environ`, which shows the environment that a program was started with, whatever the
 * program does to its variables later. So the launcher (`bin/outpost`) takes the credentials out of the environment before it
 * starts this program, and passes them through a pipe; this module reads the pipe and closes it before the command starts.
 *
 * Assumes the launcher: where the environment of this process shows a credential all the same, `exec` refuses to start.
 */
import { closeSync, readFileSync } from 'node:fs'
import { messageOf } from '../../../platform/errors.ts'
import { CommandError, type CommandIo } from '../../framework/command-shape.ts'
import { withoutLauncherVariables } from '../../framework/launcher-variables.ts'

/** Tokens, and codes that would be good with one. The launcher has the same list. */
const CREDENTIALS = ['OUTPOST_TOKEN', 'VAULT_TOKEN', 'NOMAD_TOKEN', 'OUTPOST_MFA', 'VAULT_MFA']
/** Names the descriptor of the pipe; set by the launcher. */
const DESCRIPTOR = 'OUTPOST_CREDENTIALS_FD'

/** The same with the credentials in its environment. Throws CommandError. */
export function withCredentials(io: CommandIo): CommandIo {
  const { [DESCRIPTOR]: descriptor, ...env } = io.env
  if (descriptor !== undefined) return { ...io, env: { ...env, ...passedCredentials(Number(descriptor)) } }
  const shown = io.env === process.env ? shownCredential() : undefined
  if (shown === undefined) return io
  throw new CommandError(
    `the command could read ${shown} in the environment of this process: start "outpost exec" by bin/outpost, which hides it`,
  )
}

/** The environment of the command: without credentials, and without what the launcher sets for this program. */
export function environmentOfCommand(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const left = withoutLauncherVariables(env)
  for (const name of [...CREDENTIALS, DESCRIPTOR]) delete left[name]
  return left
}

function passedCredentials(descriptor: number): NodeJS.ProcessEnv {
  try {
    const lines = readFileSync(descriptor, 'utf8').split('\n').filter(Boolean)
    closeSync(descriptor)
    const given = lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)] as const)
    // A value that has a line break in it is no token.
    if (given.some(([name]) => !CREDENTIALS.includes(name))) throw new Error('a value has more than one line')
    return Object.fromEntries(given.filter(([, value]) => value !== ''))
  } catch (error) {
    throw new CommandError(`the credentials that bin/outpost passes on cannot be read: ${messageOf(error)}`)
  }
}

/** The name of a credential that others can read; undefined where there is none. */
function shownCredential(): string | undefined {
  const variables = readFileSync('/proc/self/environ', 'latin1').split('\0')
  return CREDENTIALS.find((name) => variables.some((each) => each.startsWith(`${name}=`) && each !== `${name}=`))
}
