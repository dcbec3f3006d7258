/**
 * Confirmation of destructive commands. The prompt names the cluster, so that a forgotten OUTPOST_ADDR is noticed.
 *
 * The prompt is shown only if standard input and standard error are terminals. Scripts that may run on a terminal use `-yes`.
 */
import { CommandError, type CommandIo } from '../framework/define-command.ts'
import { flag } from '../framework/options.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { type CoreAccess, requireResponse } from './core-access.ts'

export const confirmOptions = { yes: flag('Skip the confirmation prompt') }

/** `effect` completes "This will …". Throws CommandError, with nothing changed, unless the answer is "yes". */
export async function confirm(core: CoreAccess, effect: string, isGiven: boolean, io: CommandIo): Promise<void> {
  await requireYes(async () => `This will ${effect}.\n${await clusterOf(core)}`, isGiven, io)
}

/** Prints `question` on a terminal. Throws CommandError, with nothing changed, unless the answer is "yes". */
export async function requireYes(
  question: () => string | Promise<string>,
  isGiven: boolean,
  io: CommandIo,
): Promise<void> {
  const { isatty } = process.getBuiltinModule('node:tty')
  if (isGiven || !isatty(0) || !isatty(2)) return
  io.err(`${await question()}\n`)
  if (!(await promptForWord('yes', io))) throw new CommandError('not confirmed, nothing was changed')
}

/** Prompts for one word on the terminal. False for any other answer, and at the end of input. */
export async function promptForWord(word: string, io: CommandIo): Promise<boolean> {
  io.err(`Type "${word}" to continue (anything else cancels): `)
  const lines = process.getBuiltinModule('node:readline').createInterface({ input: process.stdin })
  try {
    const answer = await new Promise<string>((resolve) => {
      lines.once('close', () => resolve(''))
      lines.once('line', resolve)
    })
    if (answer === '') io.err('\n')
    return answer.trim() === word
  } finally {
    lines.close()
  }
}

/** The name of the cluster is known only while the core is active. */
async function clusterOf(core: CoreAccess): Promise<string> {
  const query = { sealedcode: '200', uninitcode: '200', drsecondarycode: '200', standbycode: '200' }
  const { fields } = await requireResponse(core, { path: 'sys/health', query })
  const [id, name] = [fields.text('cluster_id'), fields.text('cluster_name')]
  const cluster = name === '' ? '' : `${escapeLine(name)} (${escapeLine(id)}) `
  return `Cluster: ${cluster}at ${core.target.url.origin}`
}
