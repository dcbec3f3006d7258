/**
 * Keeps the manifest of an allocation up to date while its command runs.
 *
 * The first manifest must be written before the command starts. Otherwise the agent would show an allocation that cannot be stopped, or a
 * stopped one that may be collected. A later write that fails (disk full, directory collected) does not stop the command: it is
 * reported once and retried every second, and several times at the end.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../platform/errors.ts'
import type { ClientStatus, Manifest, TaskRecord } from './manifest-file.ts'
import { withTasksLost, writeManifest } from './manifest-file.ts'
import { startTicksOf } from './process-identity.ts'

const RETRY_MS = 1000
const FINAL_ATTEMPTS = 5
const FINAL_RETRY_MS = 200

export type AllocIdentity = Pick<Manifest, 'ID' | 'Name' | 'Namespace' | 'JobID' | 'TaskGroup'>

export interface ManifestUpdaterOptions {
  readonly directory: string
  readonly identity: AllocIdentity
  readonly task: string
  readonly maxFiles: number
  readonly maxFileSizeMb: number
  readonly killTimeoutMs: number
  /** Manifest of the previous run. */
  readonly previous: Manifest | undefined
  warn(message: string): void
}

export class ManifestUpdater {
  readonly #options: ManifestUpdaterOptions
  #manifest: Manifest
  #task: TaskRecord
  #retry: NodeJS.Timeout | undefined
  #warned = false

  constructor(options: ManifestUpdaterOptions) {
    this.#options = options
    const { previous, identity, task } = options
    const previousTask = previous && Object.hasOwn(previous.Tasks, task) ? previous.Tasks[task] : undefined
    this.#task = {
      State: 'pending',
      Failed: false,
      StartedAt: null,
      FinishedAt: null,
      Pids: [],
      LogsDisabled: false,
      MaxFiles: options.maxFiles,
      MaxFileSizeMB: options.maxFileSizeMb,
      ExitCode: null,
      Restarts: previousTask ? previousTask.Restarts + 1 : 0,
    }
    const ticks = startTicksOf(process.pid)
    this.#manifest = {
      ...identity,
      DesiredStatus: 'run',
      ClientStatus: 'pending',
      CreateTime: previous?.CreateTime ?? Date.now() * 1e6,
      // Includes tasks of previous runs, so that their logs are found.
      Tasks: previous ? withTasksLost(previous, Date.now()).Tasks : {},
      SupervisorPid: process.pid,
      ...(ticks === undefined ? {} : { SupervisorStartTicks: ticks }),
      KillTimeoutMs: options.killTimeoutMs,
    }
  }

  /** Writes the first manifest. Throws the system error; a previous manifest is then unchanged. */
  pending(): void {
    this.#write()
  }

  running(pid: number, startTicks: number | undefined): void {
    const started = { State: 'running', StartedAt: new Date().toISOString(), Pids: [pid] } as const
    this.#set('running', startTicks === undefined ? started : { ...started, PidStartTicks: startTicks })
  }

  /** A stop was requested. */
  stopping(): void {
    this.#manifest = { ...this.#manifest, DesiredStatus: 'stop' }
    this.#save()
  }

  /** The command has exited or could not be started. Resolves when the manifest is written, or after the last attempt. */
  async finished(end: { exitCode: number; failed: boolean }): Promise<void> {
    const { PidStartTicks: _, ...task } = this.#task
    this.#task = task
    const finished = { State: 'dead', Failed: end.failed, FinishedAt: new Date().toISOString(), Pids: [] } as const
    this.#set(end.failed ? 'failed' : 'complete', { ...finished, ExitCode: end.exitCode })
    for (let attempt = 1; this.#retry !== undefined && attempt < FINAL_ATTEMPTS; attempt++) {
      await delay(FINAL_RETRY_MS)
      this.#save()
    }
    clearTimeout(this.#retry)
  }

  #set(status: ClientStatus, change: Partial<TaskRecord>): void {
    this.#task = { ...this.#task, ...change }
    this.#manifest = { ...this.#manifest, ClientStatus: status }
    this.#save()
  }

  #save(): void {
    clearTimeout(this.#retry)
    this.#retry = undefined
    try {
      this.#write()
    } catch (error) {
      if (!this.#warned) this.#options.warn(`cannot write the manifest: ${messageOf(error)}`)
      this.#warned = true
      this.#retry = setTimeout(() => this.#save(), RETRY_MS)
    }
  }

  #write(): void {
    const { directory, task } = this.#options
    const tasks = Object.fromEntries([...Object.entries(this.#manifest.Tasks), [task, this.#task]])
    writeManifest(directory, { ...this.#manifest, Tasks: tasks })
  }
}
