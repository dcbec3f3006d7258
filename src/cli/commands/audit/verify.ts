/** `outpost audit verify`. */
import { messageOf } from '../../../platform/errors.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { integer, text } from '../../framework/options.ts'
import { cleanPath, type CoreAccess, coreOf, coreOptions, requireResponse } from '../../core/core-access.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import { type ChainCheckOptions, type ChainReport, checkChain, type ServerChain } from './chain-check.ts'

export const command = defineCommand({
  name: 'audit verify',
  summary: 'Verify the integrity of audit files',
  details: [
    'Takes the files of one device, oldest first. Each line contains the hash of the previous line; the command',
    'reports the first line that does not match. The first line must be number 1: if older files were deleted,',
    'use -from=N.',
    '',
    'Without -path, the command works offline. It cannot detect that lines were removed from the end or that',
    'all files were rewritten. With -path (requires sudo), the files must contain the last line that the server',
    'has written, and the server verifies the HMAC of each line.',
    '',
    'Exit code 0: valid; 1: invalid; 2: the command line is invalid.',
    '',
    'Example: outpost audit verify -path=file/ /var/log/outpost/audit.log.1 /var/log/outpost/audit.log',
  ].join('\n'),
  options: {
    path: text({
      placeholder: 'DEVICE',
      help: 'Verify with the server as files of this device',
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
  operands: { shown: 'FILE...', min: 1, max: Infinity },
  async run(values, files, io) {
    // Requested first, because lines that are written during the check follow this head.
    const server =
      values.path === undefined ? undefined : await chainOf(coreOf(values, io), `${cleanPath(values.path)}/`)
    return printReport(await verifyFiles(files, { from: values.from, server }), files, io, server)
  },
})

async function verifyFiles(files: readonly string[], options: ChainCheckOptions): Promise<ChainReport> {
  try {
    return await checkChain(files, options)
  } catch (error) {
    if (error instanceof CommandError) throw error
    throw new CommandError(`cannot read the files: ${messageOf(error)}`, 1, { cause: error })
  }
}

function printReport(
  { fault, first, last, torn }: ChainReport,
  files: readonly string[],
  io: CommandIo,
  server: ServerChain | undefined,
): number {
  for (const position of torn)
    io.err(`${escapeLine(position)}: incomplete line of a killed server, its request got no response\n`)
  const range = first === undefined || !last ? 'no line' : `lines ${first} to ${last.sequence}`
  if (fault) {
    io.err(`${escapeLine(fault.file)}:${fault.line}: ${fault.text}\n`)
    io.out(`valid up to there: ${range}\n`)
    return 1
  }
  const count = files.length === 1 ? '1 file' : `${files.length} files`
  io.out(`valid: ${range} in ${count}${server ? `, verified by the server up to line ${server.head.sequence}` : ''}\n`)
  return 0
}

/** The chain of a device on the server. Throws CommandError. */
async function chainOf(core: CoreAccess, path: string): Promise<ServerChain> {
  const { fields } = await requireResponse(core, { path: 'sys/audit' })
  const chain = fields.under('data').under(path).under('chain')
  const [sequence, hash, id] = [chain.number('sequence'), chain.text('hash'), chain.text('id')]
  if (hash === '') throw new CommandError(`no audit device at ${path}, check "outpost audit list"`)
  return {
    id: id === '' ? undefined : id,
    head: { sequence, hash },
    async firstInvalid(lines) {
      const request = { method: 'PUT', path: `sys/audit-verify/${path}`, body: { lines: lines.join('\n') } } as const
      const data = (await requireResponse(core, request)).fields.under('data')
      return data.boolean('valid') ? -1 : data.number('first_invalid')
    },
  }
}
