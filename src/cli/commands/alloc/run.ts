/** `outpost alloc run`: runs a command as an allocation, in this process or detached. */
import { formatDuration } from '../../../platform/duration.ts'
import { messageOf } from '../../../platform/errors.ts'
import { isUuid } from '../../../platform/schema.ts'
import { allocRoot } from '../../../supervisor/alloc-directory.ts'
import { faultOfName, faultOfTaskName } from '../../../supervisor/alloc-layout.ts'
import { detach, runAllocation, startReporter } from '../../../supervisor/alloc-run.ts'
import { dataDirOption } from '../../client/local-allocations.ts'
import { CommandError, defineCommand } from '../../framework/define-command.ts'
import { duration, flag, integer, text, UsageError, type OptionValues } from '../../framework/options.ts'

/** One tebibyte. */
const MAX_FILE_SIZE_MB = 1_048_576
const MAX_FILES = 100_000

const name = (what: string, shownDefault: string) =>
  text({ placeholder: 'NAME', help: what, fallback: undefined, shownDefault, check: faultOfName })

const OPTIONS = {
  id: text({
    placeholder: 'UUID',
    help: 'Allocation ID; a stopped allocation with this ID is restarted',
    fallback: undefined,
    shownDefault: 'a new ID',
    check: (value) => (isUuid(value) ? undefined : 'must be a UUID such as 5f9c1f3e-0d4b-4c0f-9a53-0c4f6d1c2b7a'),
  }),
  name: name('Name of the allocation', 'JOB.TASK[0]'),
  namespace: name('Namespace', 'default'),
  job: name('Job ID of the allocation', 'the task name'),
  task: text({
    placeholder: 'NAME',
    help: 'Task name; part of directory and log file names',
    fallback: undefined,
    shownDefault: 'the program name',
    check: faultOfTaskName,
  }),
  'max-files': integer({
    placeholder: 'N',
    help: 'Number of log files to keep per output',
    fallback: 10,
    min: 1,
    max: MAX_FILES,
  }),
  'max-file-size': integer({
    placeholder: 'MB',
    help: 'Size of a log file in MiB',
    fallback: 10,
    min: 1,
    max: MAX_FILE_SIZE_MB,
  }),
  'kill-timeout': duration({ help: 'Time between SIGTERM and SIGKILL', fallback: '30s', minMs: 0 }),
  'data-dir': dataDirOption,
  detach: flag('Run in the background and return once CMD has started'),
}
type RunOptions = OptionValues<typeof OPTIONS>

const DETAILS = [
  'Prints the allocation ID, waits for CMD, and exits with the exit code of CMD, or with 128 plus the signal',
  'number if a signal killed CMD. Requires no agent. If an agent runs on this host, it serves the files and',
  'logs of the allocation while CMD runs and after it has exited.',
  '',
  'CMD inherits the current directory, the environment and stdin, and receives OUTPOST_ALLOC_ID,',
  'NOMAD_ALLOC_ID, NOMAD_ALLOC_DIR, NOMAD_TASK_DIR, NOMAD_SECRETS_DIR, NOMAD_TASK_NAME and similar variables.',
  'Its stdout and stderr are written to <data dir>/alloc/<ID>/alloc/logs/<task>.<stdout|stderr>.<N>.',
  '',
  'SIGTERM and SIGINT are forwarded to the process group of CMD, which is killed after the kill timeout or on',
  'a second signal. SIGQUIT is forwarded to the process group. SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to',
  'CMD only. When CMD exits, the rest of its process group is killed. If the supervisor is killed with',
  'SIGKILL, a watchdog stops CMD.',
].join('\n')

export const command = defineCommand({
  name: 'alloc run',
  summary: 'Run a command as an allocation of this host',
  details: DETAILS,
  options: OPTIONS,
  operandsEndOptions: true,
  operands: {
    shown: '-- CMD [ARG...]',
    min: 1,
    max: Number.POSITIVE_INFINITY,
    hint: 'put the command after --, as in: outpost alloc run -- ./server -port 80',
  },
  async run(values, [program, ...args], io) {
    if (!program) throw new UsageError('missing CMD: the word after -- is empty')
    const report = startReporter(io.env)
    if (values.detach && !report) {
      io.out(`${await detach(['alloc', 'run', ...argumentsOf(values), '--', program, ...args], io.env)}\n`)
      return 0
    }
    try {
      const result = await runAllocation({
        root: allocRoot(values['data-dir'], io.env),
        id: values.id?.toLowerCase(),
        name: values.name,
        namespace: values.namespace,
        job: values.job,
        task: values.task,
        command: [program, ...args],
        env: io.env,
        stdin: report ? 'ignore' : 'inherit',
        maxFiles: values['max-files'],
        maxFileSizeMb: values['max-file-size'],
        killTimeoutMs: values['kill-timeout'],
        onOpen: (id) => {
          if (!report) io.out(`${id}\n`)
        },
        onStarted: (id) => report?.({ started: id }),
        warn: (message) => io.err(`outpost: ${message}\n`),
      })
      if (result.startFault !== undefined) throw new CommandError(result.startFault, result.exitCode)
      return result.exitCode
    } catch (error) {
      report?.({ failed: messageOf(error) })
      throw error
    }
  },
})

/** The options as arguments of the background process. */
function argumentsOf(values: RunOptions): string[] {
  return Object.entries(values).flatMap(([option, value]) => {
    if (value === undefined || option === 'detach') return []
    return [`-${option}=${option === 'kill-timeout' ? formatDuration(Number(value)) : value}`]
  })
}
