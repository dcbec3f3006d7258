/**
 * The question before a command that deletes or closes something: it names the cluster, so that nobody acts on the wrong
 * one by a forgotten OUTPOST_ADDR.
 *
 * It is asked only if a terminal can answer (standard input and standard error). Scripts without a terminal run as
 * before; scripts that may be started from a terminal pass `-yes`.
 */
import { CommandError, type CommandIo } from '../framework/command-shape.ts'
import { flag } from '../framework/options.ts'
import { shownName } from '../framework/shown.ts'
import { type CoreAccess, requireCore } from './core-access.ts'

export const confirmOptions = { yes: flag('Do not ask for confirmation on a terminal') }

/** `effect` completes "This will …". Throws CommandError, with nothing changed, unless the answer is "yes". */
export async function confirm(core: CoreAccess, effect: string, isGiven: boolean, io: CommandIo): Promise<void> {
  const { isatty } = process.getBuiltinModule('node:tty')
  if (isGiven || !isatty(0) || !isatty(2)) return
  io.err(`This will ${effect}.\n${await clusterOf(core)}\n`)
  if (!(await isAnswered('yes', io))) throw new CommandError('not confirmed, nothing was changed')
}

/** Asks for one word on the terminal. False for any other answer, and at the end of input. */
export async function isAnswered(word: string, io: CommandIo): Promise<boolean> {
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

/** The name is known while the core is active only; the address always. */
async function clusterOf(core: CoreAccess): Promise<string> {
  const query = { sealedcode: '200', uninitcode: '200', drsecondarycode: '200', standbycode: '200' }
  const { fields } = await requireCore(core, { path: 'sys/health', query })
  const [id, name] = [fields.text('cluster_id'), fields.text('cluster_name')]
  const cluster = name === '' ? '' : `${shownName(name)} (${shownName(id)}) `
  return `Cluster: ${cluster}at ${core.target.url.origin}`
}
