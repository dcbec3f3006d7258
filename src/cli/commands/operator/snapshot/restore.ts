/** `outpost operator snapshot restore`. */
import { createReadStream, statSync } from 'node:fs'
import { type Readable, Transform } from 'node:stream'
import { messageOf } from '../../../../platform/errors.ts'
import { openResponse, type Upload } from '../../../client/http-client.ts'
import { confirm, confirmOptions } from '../../../core/confirmation.ts'
import { type CoreAccess, coreOf, coreOptions, requireResponse, requireCoreSuccess } from '../../../core/core-access.ts'
import { CommandError, defineCommand } from '../../../framework/define-command.ts'
import { flag, UsageError } from '../../../framework/options.ts'
import { humanBytes } from '../../../output/table.ts'
import { Progress, terminalOf } from '../../../output/terminal.ts'

const PLAIN = '/v1/sys/storage/raft/snapshot'
const FORCED = '/v1/sys/storage/raft/snapshot-force'
const NEW = '/v1/sys/storage/snapshot-new'

export const command = defineCommand({
  name: 'operator snapshot restore',
  summary: 'Restore a snapshot',
  details: [
    'Replaces all secrets and tokens. Data that was written after the snapshot is lost. The snapshot is',
    'verified first: a damaged snapshot, or a snapshot of another cluster, is rejected and nothing changes. If the',
    'keys have changed since the snapshot, the server is sealed afterwards and unseals with the key shares or the',
    'static key of the snapshot.',
    '',
    '-new restores into a server that has never been initialized, instead of "outpost operator init". It requires no',
    'token. The server then unseals with the key shares or the static key of the snapshot. Without -new, asks',
    'for confirmation on a terminal.',
    '',
    'Example: outpost operator snapshot restore -new secrets.snap && outpost operator unseal',
  ].join('\n'),
  options: {
    force: flag('Accept the snapshot of another cluster'),
    new: flag('Restore into a server that has never been initialized'),
    ...confirmOptions,
    ...coreOptions,
  },
  operands: { shown: 'FILE|-', min: 1, max: 1 },
  async run(values, [file = ''], io) {
    if (values.new && values.force) throw new UsageError('options -new and -force are mutually exclusive')
    const core = coreOf(values, io)
    const { headers, target } = core
    if (!values.new) await confirm(core, `replace all secrets and tokens with those of ${file}`, values.yes, io)
    const progress = new Progress(io, terminalOf(2, io.env, values['no-color']))
    const upload = withProgress(uploadOf(file), progress)
    const path = values.new ? NEW : values.force ? FORCED : PLAIN
    try {
      // No timeout: the server verifies and writes the snapshot before it answers.
      const response = await openResponse(target, { method: 'POST', path, headers, upload, headTimeoutMs: 0 })
      await requireCoreSuccess(core, response)
      response.resume()
    } finally {
      progress.end()
    }
    io.out(`Success! The snapshot was restored.${values.new ? await nextStep(core) : ''}\n`)
    return 0
  },
})

/** How to unseal the server. */
async function nextStep(core: CoreAccess): Promise<string> {
  const { fields } = await requireResponse(core, { path: 'sys/seal-status' })
  return fields.boolean('recovery_seal')
    ? ' The server unseals itself within seconds if it has the static key of the snapshot.'
    : ' Next: outpost operator unseal, with the key shares of the snapshot'
}

/** Throws CommandError for a file that cannot be read. */
function uploadOf(file: string): Upload {
  if (file === '-') {
    if (process.getBuiltinModule('node:tty').isatty(0))
      throw new UsageError('cannot read a snapshot from a terminal: specify a file')
    return { source: process.stdin, bytes: undefined }
  }
  try {
    const facts = statSync(file)
    if (facts.isDirectory()) throw new Error('it is a directory')
    return {
      source: createReadStream(file, { highWaterMark: 512 * 1024 }),
      bytes: facts.isFile() ? facts.size : undefined,
    }
  } catch (error) {
    throw new CommandError(`cannot read ${file}: ${messageOf(error)}`, 1, { cause: error })
  }
}

function withProgress({ bytes: total, source }: Upload, progress: Progress): Upload {
  let bytes = 0
  const counter = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length
      const part = total === undefined || total === 0 ? undefined : bytes / total
      progress.show(part, part === undefined ? humanBytes(bytes) : `${humanBytes(bytes)} ${Math.floor(part * 100)} %`)
      done(null, chunk)
    },
  })
  const failed = (error: unknown) => counter.destroy(new CommandError(`cannot read the snapshot: ${messageOf(error)}`))
  const counted: Readable = source.on('error', failed).pipe(counter)
  return { source: counted, bytes: total }
}
