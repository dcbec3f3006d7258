/** `outpost fs ls|stat|cat|tail`. */
import type { IncomingMessage } from 'node:http'
import { agentOf, agentOptions, type AgentTarget, jsonOption, printJson } from '../client/agent-target.ts'
import { allocationId, allocOptions } from '../client/alloc-argument.ts'
import { bodyError, openResponse, requestJson, requestList, requireSuccess } from '../client/http-client.ts'
import { openSink } from '../framework/byte-sink.ts'
import { CommandError, type CommandIo, defineCommand } from '../framework/define-command.ts'
import { flag, text, UsageError } from '../framework/options.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { FileSink } from '../output/file-output.ts'
import { type JsonFields, fieldsOf } from '../output/json.ts'
import { formatPairs, formatTable, humanBytes } from '../output/table.ts'
import { fitted, Progress, terminalOf } from '../output/terminal.ts'
import { FollowSession } from '../streams/follow-session.ts'
import { tailOptions, tailQuery } from '../streams/tail-options.ts'
import { rawOutput } from '../streams/stream-output.ts'

const ls = defineCommand({
  name: 'fs ls',
  summary: 'List a directory of an allocation',
  details: [
    'PATH is relative to the allocation directory, which contains alloc/ (with alloc/logs and alloc/data) and',
    'a directory for each task. Without PATH, the allocation directory is listed.',
  ].join('\n'),
  options: { H: flag('Print sizes with units such as MiB'), json: jsonOption, ...allocOptions, ...agentOptions },
  operands: { shown: 'ALLOC [PATH]', min: 1, max: 2 },
  async run(values, [given = '', path = '/'], io) {
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    const files = await requestList(target, { path: `/v1/client/fs/ls/${id}`, query: { path } })
    if (values.json) {
      printJson(files, io)
      return 0
    }
    const rows = files.map((file) => fileCells(fileFacts(file), values.H))
    const table = formatTable(['Mode', 'Size', 'Modified', 'Name'], rows, ['left', 'right', 'left', 'left'])
    io.out(fitted(table, terminalOf(1, io.env)))
    return 0
  },
})

const stat = defineCommand({
  name: 'fs stat',
  summary: 'Show the attributes of a file',
  details: 'Symbolic links are followed within the allocation directory.',
  options: { H: flag('Print the size with a unit such as MiB'), json: jsonOption, ...allocOptions, ...agentOptions },
  operands: { shown: 'ALLOC PATH', min: 2, max: 2 },
  async run(values, [given = '', path = ''], io) {
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    const answer = await requestJson(target, { path: `/v1/client/fs/stat/${id}`, query: { path } })
    if (values.json) {
      printJson(answer, io)
      return 0
    }
    const facts = fileFacts(answer)
    const [mode = '', size = '', modified = '', name = ''] = fileCells(facts, values.H)
    const pairs: [string, string][] = [
      ['Name', name],
      ['Mode', mode],
      ['Size', size],
      ['Modified', modified],
      ['Content Type', facts.contentType],
    ]
    io.out(fitted(formatPairs(pairs), terminalOf(1, io.env)))
    return 0
  },
})

interface FileFacts {
  readonly name: string
  readonly isDirectory: boolean
  readonly size: number
  /** In Go's notation: `drwxr-xr-x`, `Lrwxrwxrwx`. */
  readonly mode: string
  /** RFC 3339, with the host's offset. */
  readonly modified: string
  readonly contentType: string
}

function fileFacts(answer: unknown): FileFacts {
  const fields: JsonFields = fieldsOf(answer)
  return {
    name: fields.text('Name'),
    isDirectory: fields.boolean('IsDir'),
    size: fields.number('Size'),
    mode: fields.text('FileMode'),
    modified: fields.text('ModTime'),
    contentType: fields.text('ContentType'),
  }
}

/** Mode, size, time and name; the name of a directory ends with a slash. */
function fileCells(file: FileFacts, human: boolean): string[] {
  const name = escapeLine(file.name)
  return [
    file.mode,
    human ? humanBytes(file.size) : String(file.size),
    shownTime(file.modified),
    file.isDirectory ? `${name}/` : name,
  ]
}

/** To the second, with the offset of the host's time zone. */
function shownTime(time: string): string {
  const match = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)$/.exec(time)
  return match ? `${match[1]} ${match[2]}${match[3] === 'Z' ? 'Z' : match[3]}` : escapeLine(time)
}

const cat = defineCommand({
  name: 'fs cat',
  summary: 'Print a file',
  details: [
    'Prints the bytes unchanged. -o writes to a temporary file and renames it when the copy is complete. Shows',
    'progress if stderr is a terminal.',
  ].join('\n'),
  options: {
    o: text({ placeholder: 'FILE', help: 'Write to this file instead of stdout', fallback: undefined }),
    ...allocOptions,
    ...agentOptions,
  },
  operands: { shown: 'ALLOC PATH', min: 2, max: 2 },
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
    throw error instanceof CommandError ? error : bodyError(error, target)
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
    throw error instanceof CommandError ? error : bodyError(error, target)
  } finally {
    progress.end()
  }
}

const tail = defineCommand({
  name: 'fs tail',
  summary: 'Print the end of a file or follow it',
  details: [
    'Prints the last 10 lines unless -n or -c is set. -f prints new data until the file is replaced. After a',
    'broken connection, the command resumes at the same position without loss or repetition. To follow a',
    'rotated log, use "outpost logs".',
  ].join('\n'),
  options: {
    f: flag('Follow the file and print new data'),
    ...tailOptions,
    n: { ...tailOptions.n, shownDefault: '10' },
    ...allocOptions,
    ...agentOptions,
  },
  operands: { shown: 'ALLOC PATH', min: 2, max: 2 },
  async run(values, [given = '', path = ''], io) {
    if (values.n !== undefined && values.c !== undefined) {
      throw new UsageError('options -n and -c are mutually exclusive')
    }
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    const session = new FollowSession({
      target,
      io,
      follow: values.f,
      resume: !values['no-resume'],
      splits: false,
    })
    const output = rawOutput({ out: session.sinks.out, err: session.sinks.out })
    const query = { path, follow: values.f, ...tailQuery(values) }
    return session.run(output, () => session.copy(`/v1/client/fs/stream/${id}`, query, output))
  },
})

export const commands = [ls, stat, cat, tail]
