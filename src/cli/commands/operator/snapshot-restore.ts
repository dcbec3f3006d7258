/** `outpost operator snapshot restore`. */
import { createReadStream, statSync } from 'node:fs'
import { type Readable, Transform } from 'node:stream'
import { messageOf } from '../../../platform/errors.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { openResponse, type Upload } from '../../client/http-client.ts'
import { flag, UsageError } from '../../framework/options.ts'
import { humanBytes } from '../../output/quantities.ts'
import { type CoreAccess, coreOf, coreOptions, requireCore, requireCoreSuccess } from '../../core/core-access.ts'
import { confirm, confirmOptions } from '../../core/confirmation.ts'
import { Progress, terminalOf } from '../../output/terminal.ts'

const PLAIN = '/v1/sys/storage/raft/snapshot'
const FORCED = '/v1/sys/storage/raft/snapshot-force'
const NEW = '/v1/sys/storage/snapshot-new'

export const command = defineCommand({
  name: 'operator snapshot restore',
  summary: 'Put a snapshot in the place of all secrets that the server has',
  details: [
    'Everything that was written since the snapshot is gone afterwards, tokens included. The snapshot',
    'is looked at as a whole first: one that is damaged, or of another cluster, changes nothing. If',
    'it was taken under other keys, the server is sealed afterwards and those open it: the key shares',
    'of that time, or the static key of the machine.',
    '',
    'With -new it becomes what a server without secrets begins with, instead of "operator init": no',
    'token is needed, and the keys of the moment of the snapshot open it afterwards. A server',
    'that is initialised refuses it. Otherwise it asks for confirmation on a terminal.',
    '',
    'Example: outpost operator snapshot restore -new secrets.snap && outpost operator unseal',
  ].join('\n'),
  options: {
    force: flag('Also take the snapshot of another cluster'),
    new: flag('Restore into a server that was never initialised'),
    ...confirmOptions,
    ...coreOptions,
  },
  operands: { shown: 'FILE|-', min: 1, max: 1, missing: 'which snapshot? give its file, or - for stdin' },
  async run(values, [file = ''], io) {
    if (values.new && values.force)
      throw new UsageError('-new needs no -force: there is nothing that could be of another cluster')
    const core = coreOf(values, io)
    const { headers, target } = core
    if (!values.new) await confirm(core, `replace all secrets and tokens by those of ${file}`, values.yes, io)
    const progress = new Progress(io, terminalOf(2, io.env, values['no-color']))
    const upload = watched(uploadOf(file), progress)
    const path = values.new ? NEW : values.force ? FORCED : PLAIN
    try {
      // Looking at it and writing it takes the server as long as the disk does.
      const response = await openResponse(target, { method: 'POST', path, headers, upload, headMs: 0 })
      await requireCoreSuccess(core, response)
      response.resume()
    } finally {
      progress.end()
    }
    io.out(`Success! The snapshot was restored.${values.new ? await nextStep(core) : ''}\n`)
    return 0
  },
})

/** What opens the server now. */
async function nextStep(core: CoreAccess): Promise<string> {
  const { fields } = await requireCore(core, { path: 'sys/seal-status' })
  return fields.boolean('recovery_seal')
    ? ' The server opens by itself within some seconds, if it has the static key of that time.'
    : ' Next: outpost operator unseal, with the key shares of the moment when it was taken.'
}

/** Throws CommandError for a file that is none. */
function uploadOf(file: string): Upload {
  if (file === '-') {
    if (process.getBuiltinModule('node:tty').isatty(0)) throw new UsageError('a snapshot cannot be typed, give a file')
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

function watched({ bytes: total, source }: Upload, progress: Progress): Upload {
  let bytes = 0
  const counter = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length
      const part = total === undefined || total === 0 ? undefined : bytes / total
      progress.show(part, part === undefined ? humanBytes(bytes) : `${humanBytes(bytes)} ${Math.floor(part * 100)} %`)
      done(null, chunk)
    },
  })
  const failed = (error: unknown) => counter.destroy(new CommandError(`cannot read it: ${messageOf(error)}`))
  const watchedSource: Readable = source.on('error', failed).pipe(counter)
  return { source: watchedSource, bytes: total }
}
