/** `outpost alloc write-log`: writes one output of a task to its rotated log, for supervisors that are scripts. */
import { basename, dirname } from 'node:path'
import { allocRoot } from '../../../supervisor/alloc-directory.ts'
import { openAllocDirectory, openOwnDirectory } from '../../../supervisor/alloc-directory-handle.ts'
import { dataDirOption } from '../../client/local-allocations.ts'
import { CommandError, defineCommand } from '../../framework/define-command.ts'
import { isUuid } from '../../../platform/schema.ts'
import { faultOfTaskName } from '../../../supervisor/alloc-layout.ts'
import { LogWriter } from '../../../supervisor/log-writer.ts'
import { choice, integer, text, UsageError } from '../../framework/options.ts'

const BYTES_PER_MB = 1024 * 1024
/** The writer ends with its input, after the last line of the task. */
const IGNORED_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const

export const command = defineCommand({
  name: 'alloc write-log',
  summary: 'Write standard input to the rotated log of a task',
  details: [
    'Writes standard input to <data dir>/alloc/<ID>/alloc/logs/<task>.<stdout|stderr>.<N> without buffering and',
    'rotates the files by size. Exits at the end of its input and ignores SIGTERM, SIGINT and SIGHUP. Use this',
    'command in a custom supervisor; "outpost alloc run" writes logs itself.',
  ].join('\n'),
  options: {
    'data-dir': dataDirOption,
    task: text({
      placeholder: 'NAME',
      help: 'Name of the task',
      fallback: undefined,
      check: faultOfTaskName,
    }),
    type: choice({ placeholder: 'TYPE', help: 'Output to write', choices: ['stdout', 'stderr'] }),
    'max-files': integer({ placeholder: 'N', help: 'Number of log files to keep', fallback: 10, min: 1, max: 100_000 }),
    'max-file-size': integer({
      placeholder: 'MB',
      help: 'Size of a log file in MiB',
      fallback: 10,
      min: 1,
      max: 1_048_576,
    }),
  },
  operands: { shown: 'ID|DIR', min: 1, max: 1 },
  async run(values, [given = ''], io) {
    if (values.task === undefined) throw new UsageError('missing -task NAME')
    const id = basename(given)
    if (!isUuid(id))
      throw new UsageError(`expected a full allocation ID or an allocation directory, got ${JSON.stringify(given)}`)
    const root = given.includes('/') ? dirname(given) : allocRoot(values['data-dir'], io.env)
    const handle = openAllocDirectory(root, id)
    const logs = openOwnDirectory(handle, 'alloc', 'logs')
    const writer = new LogWriter({
      directory: logs.at,
      task: values.task,
      type: values.type ?? 'stdout',
      maxFiles: values['max-files'],
      maxFileBytes: values['max-file-size'] * BYTES_PER_MB,
    })
    for (const signal of IGNORED_SIGNALS) process.on(signal, ignore)
    for await (const bytes of process.stdin) writer.write(bytes)
    writer.retry()
    writer.close()
    if (writer.lostBytes === 0) return 0
    throw new CommandError(`${writer.lostBytes} bytes were not written to the log (${writer.lossCause})`)
  },
})

function ignore(): void {}
