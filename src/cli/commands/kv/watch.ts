/** `outpost kv watch`. */
import { fieldsOf } from '../../output/json.ts'
import { openSink } from '../../framework/byte-sink.ts'
import { type CommandIo, defineCommand } from '../../framework/define-command.ts'
import { parseDurationMs } from '../../../platform/duration.ts'
import { choice, flag, text } from '../../framework/options.ts'
import { coreOf, coreOptions } from '../../core/core-access.ts'
import { cell, formatOf } from '../../core/secret-output.ts'
import { type ChangeBatch, changesFrom, currentCursor } from './change-polls.ts'
import { mountOption, resolveVersionedFolder } from './secret-path.ts'

const RESET_NOTICE =
  'the cursor has expired or belongs to another server: read all secrets again, the watch continues with new changes'

export const command = defineCommand({
  name: 'kv watch',
  summary: 'Print changes of secrets as they happen',
  details: [
    'Prints the operation, version and path of each change below PATH that the token may read. -format=json prints',
    'the events of the server. Each event contains a cursor for -cursor, which the server keeps for 24 hours.',
    'Without -cursor, the watch starts with new changes.',
    '',
    'After a broken connection, the watch resumes without loss or repetition. If the server no longer has the',
    'changes, the command reports this on stderr; -format=json also prints a line with "reset".',
    '',
    'The exit code is 0 after Ctrl-C, when the reader of the output has exited, and at the end of -once or',
    '-wait.',
    '',
    'Examples:',
    '  outpost kv watch secret/app',
    '  outpost kv watch -print-cursor secret/app               # 1-4711',
    '  outpost kv watch -once -cursor=1-4711 secret/app',
  ].join('\n'),
  options: {
    cursor: text({ placeholder: 'CURSOR', help: 'Start after this cursor', fallback: undefined }),
    once: flag('Exit after the first batch of changes'),
    wait: text({
      placeholder: 'DURATION',
      help: 'Exit after this time without changes',
      fallback: undefined,
      check: (value) => (parseDurationMs(value) === undefined ? 'must be a duration such as 30s' : undefined),
    }),
    'print-cursor': flag('Print the current cursor and exit'),
    format: choice({ placeholder: 'FORMAT', help: 'Output format', choices: ['table', 'json'] }),
    ...mountOption,
    ...coreOptions,
  },
  operands: { shown: '[PATH]', min: 0, max: 1 },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const folder = await resolveVersionedFolder(core, path, values.mount)
    const at = folder.at('watch')
    const ended = new AbortController()
    const { signal } = ended
    if (values['print-cursor']) {
      io.out(`${await currentCursor({ core, path: at, signal })}\n`)
      return 0
    }
    const end = () => ended.abort()
    process.once('SIGINT', end)
    const isJson = (values.format ?? formatOf({ format: undefined }, io)) === 'json'
    const sink = (io.openSink ?? openSink)(1, true)
    void sink.gone.then(end)
    const whenEnded = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
    const options = { core, path: at, io, signal }
    const start = values.cursor ?? (await currentCursor(options))
    const idleMs = values.wait === undefined ? undefined : parseDurationMs(values.wait)
    for await (const changes of changesFrom(start, idleMs, options)) {
      const written = sink.write(Buffer.from(linesOf(changes, isJson, folder.mount, io)))
      // Ctrl-C must end the command also while the reader is blocked.
      if (written) await Promise.race([written, whenEnded])
      if (values.once) break
    }
    await Promise.race([sink.end(), whenEnded])
    // A pending write must not delay the exit.
    if (signal.aborted) process.exit(0)
    return 0
  },
})

function linesOf({ cursor, events, isReset }: ChangeBatch, isJson: boolean, mount: string, io: CommandIo): string {
  if (isReset) io.err(`outpost: ${RESET_NOTICE}\n`)
  if (isJson) {
    const lines = events.map((event) => `${JSON.stringify(event)}\n`)
    return `${isReset ? `${JSON.stringify({ reset: true, cursor })}\n` : ''}${lines.join('')}`
  }
  return events.map((event) => `${lineOf(event, mount)}\n`).join('')
}

/** `write    3  secret/app/db`. */
function lineOf(event: unknown, mount: string): string {
  const fields = fieldsOf(event)
  const version = fields.number('version')
  const columns = [cell(fields.text('change')).padEnd(8), (version > 0 ? String(version) : '-').padEnd(4)]
  return `${columns.join(' ')} ${cell(`${mount}/${fields.text('path')}`)}`
}
