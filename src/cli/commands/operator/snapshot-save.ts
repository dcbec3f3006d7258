/** `outpost operator snapshot save`. */
import type { IncomingMessage } from 'node:http'
import { type ByteTarget, targetAt } from '../../output/byte-target.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import type { AgentTarget } from '../../client/agent-target.ts'
import { brokenBody, openResponse } from '../../client/http-client.ts'
import { UsageError } from '../../framework/options.ts'
import { humanBytes } from '../../output/quantities.ts'
import { coreOf, coreOptions, requireCoreSuccess } from '../../core/core-access.ts'
import { Progress, terminalOf } from '../../output/terminal.ts'

/** By then the part that says how much will follow has come. */
const HEAD_BYTES = 4096

export const command = defineCommand({
  name: 'operator snapshot save',
  summary: 'Take a snapshot of all secrets while the server goes on',
  details: [
    'The snapshot is ciphertext: whoever restores it needs the same key shares, or the key of the',
    'machine. The file appears under its name only when it is whole; - writes to stdout.',
    '',
    'Example: outpost operator snapshot save secrets-$(date +%F).snap',
  ].join('\n'),
  options: { ...coreOptions },
  operands: { shown: 'FILE|-', min: 1, max: 1, missing: 'where to? give a file, or - for stdout' },
  async run(values, [file = ''], io) {
    if (file === '-' && process.getBuiltinModule('node:tty').isatty(1)) {
      throw new UsageError('a snapshot is no text for a terminal, give a file')
    }
    const core = coreOf(values, io)
    const { headers, target } = core
    const response = await openResponse(target, { path: '/v1/sys/storage/raft/snapshot', headers, headMs: 0 })
    await requireCoreSuccess(core, response)
    const progress = new Progress(io, terminalOf(2, io.env, values['no-color']))
    const bytes = await copy(response, target, () => targetAt(file, io), progress)
    if (file !== '-') io.err(`saved ${humanBytes(bytes)} to ${file}\n`)
    return 0
  },
})

/** Resolves to the number of bytes. Throws CommandError; a file is not there then. */
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
      if (to.isGone) throw new CommandError('nobody reads the snapshot any more')
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
    throw error instanceof CommandError ? error : brokenBody(error, from)
  } finally {
    progress.end()
  }
}

/** What the first member of the archive says of the size of the others; `head` keeps what has come for the next time. */
function sizeIn(begun: Buffer, head: Buffer[]): number | undefined {
  head.push(begun)
  const { constants, gunzipSync } = process.getBuiltinModule('node:zlib')
  try {
    const text = gunzipSync(begun.subarray(0, 2 * HEAD_BYTES), { finishFlush: constants.Z_SYNC_FLUSH }).toString(
      'latin1',
    )
    const size = /"Size":(\d+)/.exec(text)?.[1]
    return size === undefined ? undefined : Number(size)
  } catch {
    return undefined // another server's; then it is not known how much will come
  }
}
