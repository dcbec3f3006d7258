/** `outpost kv export`. */
import { type ByteTarget, targetAt } from '../../output/byte-target.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { choice, text, UsageError } from '../../framework/options.ts'
import { humanBytes } from '../../output/quantities.ts'
import { askCore, type CoreAccess, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { Progress, terminalOf } from '../../output/terminal.ts'
import { type KvPlace, mountOption, versionedFolder } from './secret-path.ts'

const INTERRUPTED = 130

export const command = defineCommand({
  name: 'kv export',
  summary: 'Write a folder of secrets as JSON, or a secret as a .env file',
  details: [
    'Of each secret that the token may read its newest version and its custom metadata, one in a line; how',
    'many were left out is said on stderr. What is written meanwhile may be in it or not. The file that',
    '-output names is for its owner alone, and appears under its name only when it is whole.',
    '"outpost kv import" takes it back.',
    '',
    'Examples:',
    '  outpost kv export -output=app.json secret/app',
    '  outpost kv export -format=env secret/app/db > .env',
  ].join('\n'),
  options: {
    format: choice({ placeholder: 'FORMAT', help: 'A folder, or one secret', choices: ['json', 'env'] }),
    output: text({ placeholder: 'FILE', help: 'Write to this file instead of stdout', fallback: '-' }),
    ...mountOption,
    ...coreOptions,
  },
  operands: { shown: '[PATH]', min: 0, max: 1, missing: '' },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const place = await versionedFolder(core, path, values.mount)
    const target = targetAt(values.output, io)
    const leave = () => {
      target.discard()
      process.exit(INTERRUPTED)
    }
    process.once('SIGINT', leave).once('SIGTERM', leave)
    // What moves would run into what is printed.
    const quiet = values['no-color'] || (values.output === '-' && terminalOf(1, io.env).isTerminal)
    try {
      const written =
        values.format === 'env'
          ? await exportEnv(core, place, target)
          : await exportTree(core, place, target, { io, progress: new Progress(io, terminalOf(2, io.env, quiet)) })
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

async function exportEnv(core: CoreAccess, place: KvPlace, target: ByteTarget): Promise<string> {
  if (place.secret === '') throw new UsageError('which secret? -format=env is for one')
  const answer = await askCore(core, { path: place.at('export'), query: { format: 'env' } })
  if (!answer) throw new CommandError(`no value found at ${place.mount}/${place.secret}`)
  await target.write(Buffer.from(answer.fields.under('data').text('text')))
  return `${place.mount}/${place.secret}`
}

interface Shown {
  readonly io: CommandIo
  readonly progress: Progress
}

/** Page after page, so that a large tree is nowhere as a whole. Resolves to how much that was. */
async function exportTree(core: CoreAccess, place: KvPlace, to: ByteTarget, { io, progress }: Shown): Promise<string> {
  let [count, bytes, leftOut] = [0, 0, 0]
  const write = async (part: string) => {
    const chunk = Buffer.from(part)
    bytes += chunk.length
    await to.write(chunk)
  }
  try {
    await write('{"secrets":{')
    for (let after: string | undefined; !to.isGone; ) {
      const { fields } = await requireCore(core, { path: place.at('export'), query: { after } })
      const page = fields.under('data')
      const secrets = page.value('secrets')
      for (const [name, secret] of Object.entries(isJsonObject(secrets) ? secrets : {})) {
        await write(`${count++ === 0 ? '' : ','}\n${JSON.stringify(name)}:${JSON.stringify(secret)}`)
      }
      leftOut += page.number('left_out')
      progress.show(undefined, `${count} secrets, ${humanBytes(bytes)}`)
      const next = page.value('next')
      if (typeof next !== 'string') break
      after = next
    }
    await write('\n}}\n')
  } finally {
    progress.end()
  }
  if (leftOut > 0) io.err(`warning: secrets that this token may not read are left out: ${leftOut}\n`)
  return `${count} ${count === 1 ? 'secret' : 'secrets'} (${humanBytes(bytes)})`
}
