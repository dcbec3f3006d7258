/**
 * `outpost alloc write-log`: one output of a task into its rotated log, for supervisors that are scripts.
 */
import { basename, dirname } from 'node:path'
import { allocRoot, dataDirOption } from '../../../supervisor/alloc-directory.ts'
import { openPlace, ownDirectory } from '../../../supervisor/alloc-directory-handle.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { isUuid } from '../../../platform/schema.ts'
import { faultOfTaskName } from '../../client/identifier.ts'
import { LogWriter } from '../../../supervisor/log-writer.ts'
import { choice, integer, text, UsageError } from '../../framework/options.ts'

const BYTES_PER_MB = 1024 * 1024
/** What would end the writer before the last line of the task is in its file. */
const SURVIVED = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const

export const command = defineCommand({
  name: 'alloc write-log',
  summary: "Write standard input to a task's rotated log",
  details: [
    'Writes standard input, as it comes, to <data dir>/alloc/<ID>/alloc/logs/<task>.<stdout|stderr>.<N>',
    'and goes on to the next file when one is full. Ends with the end of its input; SIGTERM, SIGINT and',
    'SIGHUP do not end it. For supervisors of your own; "alloc run" does all of this by itself.',
  ].join('\n'),
  options: {
    'data-dir': dataDirOption,
    task: text({
      placeholder: 'NAME',
      help: 'Name of the task',
      fallback: undefined,
      check: faultOfTaskName,
    }),
    type: choice({ placeholder: 'TYPE', help: 'Which output it is', choices: ['stdout', 'stderr'] }),
    'max-files': integer({ placeholder: 'N', help: 'Log files kept', fallback: 10, min: 1, max: 100_000 }),
    'max-file-size': integer({
      placeholder: 'MB',
      help: 'Size of one log file in MiB',
      fallback: 10,
      min: 1,
      max: 1_048_576,
    }),
  },
  operands: { shown: 'ID|DIR', min: 1, max: 1, missing: 'which allocation? give its ID, or its directory' },
  async run(values, [given = ''], io) {
    if (values.task === undefined) throw new UsageError('which task? give its name with -task')
    const id = basename(given)
    if (!isUuid(id))
      throw new UsageError(`${JSON.stringify(given)} is neither the full ID nor the directory of an allocation`)
    const root = given.includes('/') ? dirname(given) : allocRoot(values['data-dir'], io.env)
    const place = openPlace(root, id)
    const logs = ownDirectory(place, 'alloc', 'logs')
    const writer = new LogWriter({
      directory: logs.at,
      task: values.task,
      type: values.type ?? 'stdout',
      maxFiles: values['max-files'],
      maxFileBytes: values['max-file-size'] * BYTES_PER_MB,
    })
    for (const signal of SURVIVED) process.on(signal, ignore)
    for await (const bytes of process.stdin) writer.write(bytes)
    writer.retry()
    writer.close()
    if (writer.lostBytes === 0) return 0
    throw new CommandError(`${writer.lostBytes} bytes could not be written to the log (${writer.lossCause})`)
  },
})

function ignore(): void {}
