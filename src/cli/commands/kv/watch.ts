/** `outpost kv watch`. */
import { fieldsOf } from '../../output/answer.ts'
import { openSink } from '../../framework/byte-sink.ts'
import { type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { parseDurationMs } from '../../../platform/duration.ts'
import { choice, flag, text } from '../../framework/options.ts'
import { coreOf, coreOptions } from '../../core/core-access.ts'
import { cell, formatOf } from '../../core/secret-output.ts'
import { type Changes, changesFrom, cursorOfNow } from './change-polls.ts'
import { mountOption, versionedFolder } from './secret-path.ts'

const LOST =
  'the cursor is older than what the server remembers, or of another server: read everything again, going on with what happens now'

export const command = defineCommand({
  name: 'kv watch',
  summary: 'Print what happens to secrets, as it happens',
  details: [
    'A line for each change of what the token may read below PATH: what happened, to which version, where.',
    'With -format=json it is what the server says, and each line has the cursor with which -cursor goes on',
    'behind it, for as long as the server remembers (24 hours). Without -cursor it begins now.',
    '',
    'When the connection breaks it is resumed where it was: nothing is lost and nothing told twice. Where',
    'the server does not remember what happened since, that is said on stderr, and with -format=json by a',
    'line with "reset".',
    '',
    'Exit code 0 on Ctrl-C, when the reader of the output leaves, and at the end that -once and -wait make.',
    '',
    'Examples:',
    '  outpost kv watch secret/app',
    '  outpost kv watch -print-cursor secret/app               # 1-4711',
    '  outpost kv watch -once -cursor=1-4711 secret/app',
  ].join('\n'),
  options: {
    cursor: text({ placeholder: 'CURSOR', help: 'Begin behind this one', fallback: undefined }),
    once: flag('End with the first answer that has changes'),
    wait: text({
      placeholder: 'DURATION',
      help: 'End when nothing has happened for so long, as in 30s; 0s: only what has happened already',
      fallback: undefined,
      check: (value) => (parseDurationMs(value) === undefined ? 'must be a duration such as 30s' : undefined),
    }),
    'print-cursor': flag('Print the cursor of now, and nothing else'),
    format: choice({ placeholder: 'FORMAT', help: 'How to print it', choices: ['table', 'json'] }),
    ...mountOption,
    ...coreOptions,
  },
  operands: { shown: '[PATH]', min: 0, max: 1, missing: '' },
  async run(values, [path = ''], io) {
    const core = coreOf(values, io)
    const place = await versionedFolder(core, path, values.mount)
    const at = place.at('watch')
    const ended = new AbortController()
    const { signal } = ended
    if (values['print-cursor']) {
      io.out(`${await cursorOfNow({ core, path: at, signal })}\n`)
      return 0
    }
    const end = () => ended.abort()
    process.once('SIGINT', end)
    const isJson = (values.format ?? formatOf({ format: undefined }, io)) === 'json'
    const sink = (io.openSink ?? openSink)(1, true)
    void sink.gone.then(end)
    const whenEnded = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
    const options = { core, path: at, io, signal }
    const start = values.cursor ?? (await cursorOfNow(options))
    const idleMs = values.wait === undefined ? undefined : parseDurationMs(values.wait)
    for await (const changes of changesFrom(start, idleMs, options)) {
      const taken = sink.write(Buffer.from(shown(changes, isJson, place.mount, io)))
      // Ctrl-C must end us also while the reader takes nothing.
      if (taken) await Promise.race([taken, whenEnded])
      if (values.once) break
    }
    await Promise.race([sink.end(), whenEnded])
    // Nothing that is still on its way may keep us.
    if (signal.aborted) process.exit(0)
    return 0
  },
})

function shown({ cursor, events, isReset }: Changes, isJson: boolean, mount: string, io: CommandIo): string {
  if (isReset) io.err(`outpost: ${LOST}\n`)
  if (isJson) {
    const lines = events.map((event) => `${JSON.stringify(event)}\n`)
    return `${isReset ? `${JSON.stringify({ reset: true, cursor })}\n` : ''}${lines.join('')}`
  }
  return events.map((event) => `${line(event, mount)}\n`).join('')
}

/** `write    3  secret/app/db`. */
function line(event: unknown, mount: string): string {
  const fields = fieldsOf(event)
  const version = fields.number('version')
  const columns = [cell(fields.text('change')).padEnd(8), (version > 0 ? String(version) : '-').padEnd(4)]
  return `${columns.join(' ')} ${cell(`${mount}/${fields.text('path')}`)}`
}
