/** `outpost operator snapshot save`. */
import type { IncomingMessage } from 'node:http'
import type { AgentTarget } from '../../../client/agent-target.ts'
import { bodyError, openResponse } from '../../../client/http-client.ts'
import { coreOf, coreOptions, requireCoreSuccess } from '../../../core/core-access.ts'
import { CommandError, defineCommand } from '../../../framework/define-command.ts'
import { UsageError } from '../../../framework/options.ts'
import { type ByteTarget, targetAt } from '../../../output/file-output.ts'
import { humanBytes } from '../../../output/table.ts'
import { Progress, terminalOf } from '../../../output/terminal.ts'

/** The first bytes contain the size of the snapshot. */
const HEAD_BYTES = 4096

export const command = defineCommand({
  name: 'operator snapshot save',
  summary: 'Save a snapshot of all secrets',
  details: [
    'The server continues to serve requests. The snapshot is encrypted: after a restore, the server unseals',
    'with the same key shares or static key. The file is written to a temporary name and renamed when it is',
    'complete; - writes to stdout.',
    '',
    'Example: outpost operator snapshot save secrets-$(date +%F).snap',
  ].join('\n'),
  options: { ...coreOptions },
  operands: { shown: 'FILE|-', min: 1, max: 1 },
  async run(values, [file = ''], io) {
    if (file === '-' && process.getBuiltinModule('node:tty').isatty(1)) {
      throw new UsageError('cannot write a snapshot to a terminal: specify a file')
    }
    const core = coreOf(values, io)
    const { headers, target } = core
    const response = await openResponse(target, { path: '/v1/sys/storage/raft/snapshot', headers, headTimeoutMs: 0 })
    await requireCoreSuccess(core, response)
    const progress = new Progress(io, terminalOf(2, io.env, values['no-color']))
    const bytes = await copy(response, target, () => targetAt(file, io), progress)
    if (file !== '-') io.err(`saved ${humanBytes(bytes)} to ${file}\n`)
    return 0
  },
})

/** Resolves to the number of bytes. Throws CommandError, without a file. */
async function copy(
  response: IncomingMessage,
  from: AgentTarget,
  open: () => ByteTarget,
  progress: Progress,
): Promise<number> {
  let bytes = 0
  let total: number | undefined
  let to: ByteTarget | undefined
  const head: Buffer[] = []
  try {
    to = open()
    for await (const chunk of response as AsyncIterable<Buffer>) {
      if (to.isGone) throw new CommandError('the reader of the snapshot has exited')
      await to.write(chunk)
      if (bytes < HEAD_BYTES) total = sizeIn(Buffer.concat([...head.splice(0), chunk]), head)
      bytes += chunk.length
      if (total === undefined && bytes < HEAD_BYTES) continue
      const part = total === undefined ? undefined : Math.min(1, bytes / total)
      progress.show(part, part === undefined ? humanBytes(bytes) : `${humanBytes(bytes)} ${Math.floor(part * 100)} %`)
    }
    await to.finish()
    return bytes
  } catch (error) {
    response.destroy()
    to?.discard()
    throw error instanceof CommandError ? error : bodyError(error, from)
  } finally {
    progress.end()
  }
}

/** The size of the data in the first member of the archive; `head` keeps the bytes for the next call. */
function sizeIn(bytes: Buffer, head: Buffer[]): number | undefined {
  head.push(bytes)
  const { constants, gunzipSync } = process.getBuiltinModule('node:zlib')
  try {
    const text = gunzipSync(bytes.subarray(0, 2 * HEAD_BYTES), { finishFlush: constants.Z_SYNC_FLUSH }).toString(
      'latin1',
    )
    const size = /"Size":(\d+)/.exec(text)?.[1]
    return size === undefined ? undefined : Number(size)
  } catch {
    return undefined // the snapshot of another program, of unknown size
  }
}
