/** `outpost kv export`. */
import { type ByteTarget, targetAt } from '../../output/file-output.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { choice, text, UsageError } from '../../framework/options.ts'
import { humanBytes } from '../../output/table.ts'
import { sendRequest, type CoreAccess, coreOf, coreOptions, requireResponse } from '../../core/core-access.ts'
import { isJsonObject } from '../../output/json.ts'
import { Progress, terminalOf } from '../../output/terminal.ts'
import { type KvPath, mountOption, resolveVersionedFolder } from './secret-path.ts'

const INTERRUPTED = 130

export const command = defineCommand({
  name: 'kv export',
  summary: 'Export secrets to a file',
  details: [
    'Exports the latest version and the custom metadata of each secret that the token may read. Reports the',
    'number of omitted secrets on stderr. A secret that is written during the export may be missing or have',
    'either value. The output file has mode 0600 and is renamed when it is complete. Use "outpost kv import" to',
    'import it.',
    '',
    'Examples:',
    '  outpost kv export -output=app.json secret/app',
    '  outpost kv export -format=env secret/app/db > .env',
  ].join('\n'),
  options: {
    format: choice({
      placeholder: 'FORMAT',
      help: 'File format; env exports one secret',
      choices: ['json', 'env'],
    }),
    output: text({ placeholder: 'FILE', help: 'Write to this file instead of stdout', fallback: '-' }),
    ...mountOption,
    ...coreOptions,
  },
  operands: { shown: '[PATH]', min: 0, max: 1 },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const folder = await resolveVersionedFolder(core, path, values.mount)
    const target = targetAt(values.output, io)
    const leave = () => {
      target.discard()
      process.exit(INTERRUPTED)
    }
    process.once('SIGINT', leave).once('SIGTERM', leave)
    // No progress on a terminal that shows the output.
    const quiet = values['no-color'] || (values.output === '-' && terminalOf(1, io.env).isTerminal)
    try {
      const written =
        values.format === 'env'
          ? await exportEnv(core, folder, target)
          : await exportTree(core, folder, target, { io, progress: new Progress(io, terminalOf(2, io.env, quiet)) })
      await target.finish()
      if (values.output !== '-') io.err(`exported ${written} to ${values.output}\n`)
      return 0
    } catch (error) {
      target.discard()
      throw error
    } finally {
      process.off('SIGINT', leave).off('SIGTERM', leave)
    }
  },
})

async function exportEnv(core: CoreAccess, secret: KvPath, target: ByteTarget): Promise<string> {
  if (secret.secret === '') throw new UsageError('missing PATH of a secret: -format=env exports one secret')
  const answer = await sendRequest(core, { path: secret.at('export'), query: { format: 'env' } })
  if (!answer) throw new CommandError(`no value found at ${secret.mount}/${secret.secret}`)
  await target.write(Buffer.from(answer.fields.under('data').text('text')))
  return `${secret.mount}/${secret.secret}`
}

interface ExportOutput {
  readonly io: CommandIo
  readonly progress: Progress
}

/** Exports page by page, so that memory does not grow with the tree. Resolves to a description of the size. */
async function exportTree(
  core: CoreAccess,
  folder: KvPath,
  to: ByteTarget,
  { io, progress }: ExportOutput,
): Promise<string> {
  let [count, bytes, omitted] = [0, 0, 0]
  const write = async (part: string) => {
    const chunk = Buffer.from(part)
    bytes += chunk.length
    await to.write(chunk)
  }
  try {
    await write('{"secrets":{')
    for (let after: string | undefined; !to.isGone; ) {
      const { fields } = await requireResponse(core, { path: folder.at('export'), query: { after } })
      const page = fields.under('data')
      const secrets = page.value('secrets')
      for (const [name, secret] of Object.entries(isJsonObject(secrets) ? secrets : {})) {
        await write(`${count++ === 0 ? '' : ','}\n${JSON.stringify(name)}:${JSON.stringify(secret)}`)
      }
      omitted += page.number('left_out')
      progress.show(undefined, `${count} secrets, ${humanBytes(bytes)}`)
      const next = page.value('next')
      if (typeof next !== 'string') break
      after = next
    }
    await write('\n}}\n')
  } finally {
    progress.end()
  }
  if (omitted > 0) io.err(`warning: omitted secrets that the token may not read: ${omitted}\n`)
  return `${count} ${count === 1 ? 'secret' : 'secrets'} (${humanBytes(bytes)})`
}
