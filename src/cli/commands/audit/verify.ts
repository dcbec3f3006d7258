/** `outpost audit verify`. */
import { messageOf } from '../../../platform/errors.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { integer, text } from '../../framework/options.ts'
import { type CoreAccess, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { shownName } from '../../framework/shown.ts'
import { type ChainCheckOptions, type ChainReport, checkChain, type ServerChain } from './chain-check.ts'
import { devicePath } from './device-path.ts'

export const command = defineCommand({
  name: 'audit verify',
  summary: 'Check that no line of audit files was changed, removed or added',
  details: [
    'Give the files of a device, the oldest first. Each line has the hash of the one before; the',
    'command names the first line that does not fit. The first line must have the number 1: give',
    '-from=N where older files are gone.',
    '',
    'Without -path no server is asked: lines that were cut off the end, and files that were written',
    'again as a whole, are not found. With -path (which needs sudo) the files must have the line that',
    'the server names as its last one, and the server checks the code of each line, which another',
    'program cannot compute.',
    '',
    'Exit code 0: whole; 1: not whole; 2: the command line is wrong.',
    '',
    'Example: outpost audit verify -path=file/ /var/log/outpost/audit.log.1 /var/log/outpost/audit.log',
  ].join('\n'),
  options: {
    path: text({
      placeholder: 'DEVICE',
      help: 'The device whose files they are: the server checks codes and end',
      fallback: undefined,
    }),
    from: integer({
      placeholder: 'N',
      help: 'Number of the first line',
      min: 1,
      max: Number.MAX_SAFE_INTEGER,
      fallback: undefined,
    }),
    ...coreOptions,
  },
  operands: { shown: 'FILE...', min: 1, max: Infinity, missing: 'which files? the oldest first' },
  async run(values, files, io) {
    // Requested first: lines that are written meanwhile follow the head.
    const server = values.path === undefined ? undefined : await chainOf(coreOf(values, io), devicePath(values.path))
    return print(await checked(files, { from: values.from, server }), files, io, server)
  },
})

async function checked(files: readonly string[], options: ChainCheckOptions): Promise<ChainReport> {
  try {
    return await checkChain(files, options)
  } catch (error) {
    if (error instanceof CommandError) throw error
    throw new CommandError(`the files cannot be read: ${messageOf(error)}`, 1, { cause: error })
  }
}

function print(
  { fault, first, last, torn }: ChainReport,
  files: readonly string[],
  io: CommandIo,
  server: ServerChain | undefined,
): number {
  for (const position of torn)
    io.err(`${shownName(position)}: a part of a line, left by a killed server: its request was never answered\n`)
  const range = first === undefined || !last ? 'no line' : `lines ${first} to ${last.sequence}`
  if (fault) {
    io.err(`${shownName(fault.file)}:${fault.line}: ${fault.text}\n`)
    io.out(`whole up to there: ${range}\n`)
    return 1
  }
  const count = files.length === 1 ? '1 file' : `${files.length} files`
  io.out(`whole: ${range} in ${count}${server ? `, as the server has it up to line ${server.head.sequence}` : ''}\n`)
  return 0
}

/** The chain of a device, as the server has it. Throws CommandError. */
async function chainOf(core: CoreAccess, path: string): Promise<ServerChain> {
  const { fields } = await requireCore(core, { path: 'sys/audit' })
  const chain = fields.under('data').under(path).under('chain')
  const [sequence, hash, id] = [chain.number('sequence'), chain.text('hash'), chain.text('id')]
  if (hash === '') throw new CommandError(`there is no audit device ${path}, "outpost audit list" lists them`)
  return {
    id: id === '' ? undefined : id,
    head: { sequence, hash },
    async firstWrong(lines) {
      const request = { method: 'PUT', path: `sys/audit-verify/${path}`, body: { lines: lines.join('\n') } } as const
      const data = (await requireCore(core, request)).fields.under('data')
      return data.boolean('valid') ? -1 : data.number('first_invalid')
    },
  }
}
