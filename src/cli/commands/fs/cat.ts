/** `outpost fs cat`. */
import type { IncomingMessage } from 'node:http'
import { agentOf, agentOptions } from '../../client/agent-access.ts'
import { allocationId, allocOptions } from '../../client/alloc-argument.ts'
import { openSink } from '../../framework/byte-sink.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { FileSink } from '../../output/file-sink.ts'
import type { AgentTarget } from '../../client/agent-target.ts'
import { brokenBody, openResponse, requireSuccess } from '../../client/http-client.ts'
import { text } from '../../framework/options.ts'
import { humanBytes } from '../../output/quantities.ts'
import { Progress, terminalOf } from '../../output/terminal.ts'

export const command = defineCommand({
  name: 'fs cat',
  summary: 'Print a file of an allocation',
  details: [
    'Copies the bytes of the file as they are. With -o they go to a file, which appears under its name',
    'only when it is whole; how far it is, is shown when stderr is a terminal.',
  ].join('\n'),
  options: {
    o: text({ placeholder: 'FILE', help: 'Write to this file instead of stdout', fallback: undefined }),
    ...allocOptions,
    ...agentOptions,
  },
  operands: { shown: 'ALLOC PATH', min: 2, max: 2, missing: 'which file? give the allocation and a path in it' },
  async run(values, [given = '', path = ''], io) {
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    const response = await openResponse(target, { path: `/v1/client/fs/cat/${id}`, query: { path } })
    await requireSuccess(response, target)
    if (values.o === undefined) await toStdout(response, target, io)
    else await toFile(response, target, values.o, new Progress(io, terminalOf(2, io.env, values['no-color'])))
    return 0
  },
})

async function toStdout(response: IncomingMessage, target: AgentTarget, io: CommandIo): Promise<void> {
  const sink = (io.openSink ?? openSink)(1, false)
  void sink.gone.then(() => response.destroy())
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) await sink.write(chunk)
  } catch (error) {
    if (sink.isGone) return
    throw error instanceof CommandError ? error : brokenBody(error, target)
  } finally {
    await sink.end()
  }
}

async function toFile(response: IncomingMessage, target: AgentTarget, file: string, progress: Progress): Promise<void> {
  const total = Number(response.headers['content-length'])
  const sink = new FileSink(file)
  let bytes = 0
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      sink.write(chunk)
      bytes += chunk.length
      const part = total > 0 ? bytes / total : undefined
      const percent = part === undefined ? '' : ` ${Math.floor(part * 100)} %`
      progress.show(part, `${humanBytes(bytes)}${percent}`)
    }
    sink.finish()
  } catch (error) {
    sink.discard()
    throw error instanceof CommandError ? error : brokenBody(error, target)
  } finally {
    progress.end()
  }
}
