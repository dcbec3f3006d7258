/** `outpost audit verify`. */
import type { ChainHead } from '../../secrets/audit/audit-chain.ts'
import { messageOf } from '../../kit/errors.ts'
import { CommandError, type CommandIo, defineCommand } from '../command-shape.ts'
import { text } from '../options.ts'
import { type CoreAccess, coreOf, coreOptions, requireCore } from '../secrets/core-access.ts'
import { shownName } from '../shown.ts'
import { type ChainReport, checkChain } from './chain-check.ts'
import { devicePath } from './device-path.ts'

export const command = defineCommand({
  name: 'audit verify',
  summary: 'Check that no line of audit files was changed, removed or added',
  details: [
    'The files are given in their order, the oldest first. Each line has the hash of the one before: the',
    'first line that does not belong there is named, and how far the files are whole. Without -path no',
    'server is asked. Lines that were cut off the end, and files that were made anew as a whole, show only',
    'against what the server has (-path), which needs sudo.',
    '',
    'Exit code 0: whole; 1: not whole; 2: the command line is wrong.',
    '',
    'Example: outpost audit verify -path=file/ /var/log/outpost/audit.log.1 /var/log/outpost/audit.log',
  ].join('\n'),
  options: {
    path: text({
      placeholder: 'DEVICE',
      help: 'The device whose files they are: the end is compared with that of the server',
      fallback: undefined,
    }),
    ...coreOptions,
  },
  operands: { shown: 'FILE...', min: 1, max: Infinity, missing: 'which files? the oldest first' },
  async run(values, files, io) {
    // Asked for first: what is written meanwhile is behind it.
    const head = values.path === undefined ? undefined : await headOfDevice(coreOf(values, io), devicePath(values.path))
    return tell(await checked(files, head), files, io, head)
  },
})

async function checked(files: readonly string[], head: ChainHead | undefined): Promise<ChainReport> {
  try {
    return await checkChain(files, head)
  } catch (error) {
    throw new CommandError(`the files cannot be read: ${messageOf(error)}`, 1, { cause: error })
  }
}

function tell(
  { fault, first, last, torn }: ChainReport,
  files: readonly string[],
  io: CommandIo,
  head?: ChainHead,
): number {
  for (const place of torn)
    io.err(`${shownName(place)}: a part of a line, left by a killed server: its request was never answered\n`)
  const range = first === undefined || !last ? 'no line' : `lines ${first} to ${last.sequence}`
  if (fault) {
    io.err(`${shownName(fault.file)}:${fault.line}: ${fault.text}\n`)
    io.out(`whole up to there: ${range}\n`)
    return 1
  }
  const count = files.length === 1 ? '1 file' : `${files.length} files`
  io.out(`whole: ${range} in ${count}${head ? `, as the server has it up to line ${head.sequence}` : ''}\n`)
  return 0
}

/** The end of a device's chain, as the server has it. Throws CommandError. */
async function headOfDevice(core: CoreAccess, path: string): Promise<ChainHead> {
  const { fields } = await requireCore(core, { path: 'sys/audit' })
  const chain = fields.under('data').under(path).under('chain')
  const [sequence, hash] = [chain.number('sequence'), chain.text('hash')]
  if (hash === '') throw new CommandError(`there is no audit device ${path}, "outpost audit list" lists them`)
  return { sequence, hash }
}
