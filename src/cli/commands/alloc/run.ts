/**
 * `outpost alloc run`: makes or reopens an allocation directory and supervises a command in it.
 */
import { rmdirSync } from 'node:fs'
import { basename } from 'node:path'
import { formatDuration } from '../../../platform/duration.ts'
import { messageOf } from '../../../platform/errors.ts'
import type { StartReport } from '../../../supervisor/detach.ts'
import { detach, reporterToParent } from '../../../supervisor/detach.ts'
import { allocRoot, dataDirOption } from '../../../supervisor/alloc-directory.ts'
import { type AllocLayout, type AllocPaths, layOut } from '../../../supervisor/alloc-layout.ts'
import { openAllocation } from '../../../supervisor/alloc-open.ts'
import type { CommandIo } from '../../framework/command-shape.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { isUuid } from '../../../platform/schema.ts'
import { faultOfName, faultOfTaskName } from '../../client/identifier.ts'
import { withoutLauncherVariables } from '../../framework/launcher-variables.ts'
import type { Identity } from '../../../supervisor/manifest-keeper.ts'
import { ManifestKeeper } from '../../../supervisor/manifest-keeper.ts'
import type { ValuesOf } from '../../framework/options.ts'
import { duration, flag, integer, text, UsageError } from '../../framework/options.ts'
import { SignalForwarder } from '../../../supervisor/signal-forwarder.ts'
import type { Outcome } from '../../../supervisor/supervise.ts'
import { supervise } from '../../../supervisor/supervise.ts'

const BYTES_PER_MB = 1024 * 1024
/** A file of a tebibyte: more than anybody can mean. */
const MAX_FILE_SIZE_MB = 1_048_576
const MAX_FILES = 100_000

const name = (what: string, shownDefault: string) =>
  text({ placeholder: 'NAME', help: what, fallback: undefined, shownDefault, check: faultOfName })

const OPTIONS = {
  id: text({
    placeholder: 'UUID',
    help: 'ID of the allocation; one that has ended is started again and its logs go on',
    fallback: undefined,
    shownDefault: 'a new one',
    check: (value) => (isUuid(value) ? undefined : 'must be a UUID such as 5f9c1f3e-0d4b-4c0f-9a53-0c4f6d1c2b7a'),
  }),
  name: name('Name of the allocation', 'JOB.TASK[0]'),
  namespace: name('Namespace', 'default'),
  job: name('Job it belongs to', "the task's name"),
  task: text({
    placeholder: 'NAME',
    help: 'Name of the task: its directory and the names of its log files',
    fallback: undefined,
    shownDefault: "the program's name",
    check: faultOfTaskName,
  }),
  'max-files': integer({
    placeholder: 'N',
    help: 'Log files kept, of each of stdout and stderr',
    fallback: 10,
    min: 1,
    max: MAX_FILES,
  }),
  'max-file-size': integer({
    placeholder: 'MB',
    help: 'Size of one log file in MiB',
    fallback: 10,
    min: 1,
    max: MAX_FILE_SIZE_MB,
  }),
  'kill-timeout': duration({ help: 'Time between SIGTERM and SIGKILL', fallback: '30s', minMs: 0 }),
  'data-dir': dataDirOption,
  detach: flag('Return once the command has started; the supervisor goes on in the background'),
}
type Values = ValuesOf<typeof OPTIONS>

const DETAILS = [
  'Prints the allocation ID, then waits and exits with the exit code of CMD, or with 128 and the',
  'signal number when a signal killed it. The agent serves its files and logs while it runs and after.',
  'Needs no agent: it goes on whatever happens to one.',
  '',
  'CMD runs in the current directory, with this environment and stdin, and with OUTPOST_ALLOC_ID,',
  'NOMAD_ALLOC_ID, NOMAD_ALLOC_DIR, NOMAD_TASK_DIR, NOMAD_SECRETS_DIR, NOMAD_TASK_NAME and alike.',
  'Its stdout and stderr go to <data dir>/alloc/<ID>/alloc/logs/<task>.<stdout|stderr>.<N>.',
  '',
  'SIGTERM and SIGINT stop CMD and all it started; a second one, or the kill timeout, kills them.',
  'SIGQUIT goes to all of them too, SIGHUP, SIGUSR1 and SIGUSR2 go to CMD alone. What CMD leaves behind',
  'in its process group when it ends is killed. When this supervisor itself is killed by SIGKILL,',
  'a watchdog stops CMD.',
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
    missing: 'what shall run? give the command after --, as in: outpost alloc run -- ./server -port 80',
  },
  async run(values, [program, ...args], io) {
    if (!program) throw new UsageError('the command after -- is empty, give the name of a program')
    const words = [program, ...args] as const
    const report = reporterToParent(io.env)
    if (values.detach && !report) return detach(['alloc', 'run', ...optionsAgain(values), '--', ...words], io)
    try {
      const outcome = await runHere(values, words, io, report)
      if (outcome.startFault !== undefined) throw new CommandError(outcome.startFault, outcome.exitCode)
      return outcome.exitCode
    } catch (error) {
      report?.({ failed: messageOf(error) })
      throw error
    }
  },
})

/** Supervises `words` in this process until they have ended. Throws CommandError. */
async function runHere(
  values: Values,
  words: readonly [string, ...string[]],
  io: CommandIo,
  report: ((report: StartReport) => void) | undefined,
): Promise<Outcome> {
  const task = values.task ?? taskNameFrom(words[0])
  const root = allocRoot(values['data-dir'], io.env)
  const { id, place, previous, release } = await openAllocation(root, values.id?.toLowerCase() ?? crypto.randomUUID())
  const warn = (message: string) => io.err(`outpost: ${message}\n`)
  const maxFiles = values['max-files']
  const maxFileSizeMb = values['max-file-size']
  const killTimeoutMs = values['kill-timeout']
  const identity = identityOf(values, id, task)
  const keeper = new ManifestKeeper({
    directory: place.at,
    identity,
    task,
    maxFiles,
    maxFileSizeMb,
    killTimeoutMs,
    previous,
    warn,
  })
  // Before the manifest, which names this process to those who stop allocations.
  const signals = new SignalForwarder(killTimeoutMs)
  try {
    // First of all: a directory without a manifest counts as another supervisor's.
    keeper.pending()
  } catch (error) {
    signals.detach()
    if (!previous) removeEmpty(place.directory)
    release()
    throw new CommandError(
      `cannot write the manifest in ${place.directory}, nothing was started: ${messageOf(error)}`,
      1,
      {
        cause: error,
      },
    )
  }
  let layout: AllocLayout | undefined
  try {
    layout = layOut(place, task)
    if (!report) io.out(`${id}\n`)
    return await supervise({
      command: words,
      env: commandEnvironment(io.env, layout.paths, identity, task),
      stdin: report ? 'ignore' : 'inherit',
      task,
      layout,
      maxFiles,
      maxFileBytes: maxFileSizeMb * BYTES_PER_MB,
      keeper,
      signals,
      onStarted: () => report?.({ started: id }),
      warn,
    })
  } catch (error) {
    await keeper.finished({ exitCode: 1, failed: true })
    throw error
  } finally {
    signals.detach()
    layout?.close()
    release()
  }
}

/** Removes the directory of an allocation that was not started. One with content is left: it was there before. */
function removeEmpty(directory: string): void {
  try {
    rmdirSync(directory)
  } catch {
    // `alloc gc` removes it.
  }
}

function identityOf(values: Values, id: string, task: string): Identity {
  const job = values.job ?? task
  return {
    ID: id,
    Name: values.name ?? `${job}.${task}[0]`,
    Namespace: values.namespace ?? 'default',
    JobID: job,
    TaskGroup: task,
  }
}

/** The program's name where it can name a directory, else `task`. */
function taskNameFrom(program: string): string {
  const own = basename(program)
  return own !== '' && faultOfTaskName(own) === undefined ? own : 'task'
}

function commandEnvironment(
  own: NodeJS.ProcessEnv,
  paths: AllocPaths,
  identity: Identity,
  task: string,
): NodeJS.ProcessEnv {
  return {
    ...withoutLauncherVariables(own),
    OUTPOST_ALLOC_ID: identity.ID,
    NOMAD_ALLOC_ID: identity.ID,
    NOMAD_SHORT_ALLOC_ID: identity.ID.slice(0, 8),
    NOMAD_ALLOC_NAME: identity.Name,
    NOMAD_ALLOC_INDEX: '0',
    NOMAD_ALLOC_DIR: paths.shared,
    NOMAD_TASK_DIR: paths.local,
    NOMAD_SECRETS_DIR: paths.secrets,
    NOMAD_TASK_NAME: task,
    NOMAD_GROUP_NAME: identity.TaskGroup,
    NOMAD_JOB_ID: identity.JobID,
    NOMAD_JOB_NAME: identity.JobID,
    NOMAD_NAMESPACE: identity.Namespace,
  }
}

/** The options as they are given to the process that goes on in the background. */
function optionsAgain(values: Values): string[] {
  return Object.entries(values).flatMap(([option, value]) => {
    if (value === undefined || option === 'detach') return []
    return [`-${option}=${option === 'kill-timeout' ? formatDuration(Number(value)) : value}`]
  })
}
