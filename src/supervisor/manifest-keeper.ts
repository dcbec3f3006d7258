/**
 * Keeps one allocation's manifest true through the life of its command.
 *
 * The first manifest must be written before the command starts: without it the agent would show a directory that no
 * command can stop, or an allocation that has ended and may be collected. A later write that fails (disk full, directory
 * collected) does not end the command: it is reported once and retried each second, and at the end a few times more.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../platform/errors.ts'
import type { ClientStatus, Manifest, TaskRecord } from './manifest.ts'
import { withTasksLost, writeManifest } from './manifest.ts'
import { startTicksOf } from './process-identity.ts'

const RETRY_MS = 1000
const FINAL_TRIES = 5
const FINAL_RETRY_MS = 200

export type Identity = Pick<Manifest, 'ID' | 'Name' | 'Namespace' | 'JobID' | 'TaskGroup'>

export interface ManifestKeeperOptions {
  readonly directory: string
  /** What is known before the command starts. */
  readonly identity: Identity
  readonly task: string
  readonly maxFiles: number
  readonly maxFileSizeMb: number
  readonly killTimeoutMs: number
  /** The manifest of the run before this one. */
  readonly previous: Manifest | undefined
  warn(message: string): void
}

export class ManifestKeeper {
  readonly #options: ManifestKeeperOptions
  #manifest: Manifest
  #task: TaskRecord
  #retry: NodeJS.Timeout | undefined
  #warned = false

  constructor(options: ManifestKeeperOptions) {
    this.#options = options
    const { previous, identity, task } = options
    const before = previous && Object.hasOwn(previous.Tasks, task) ? previous.Tasks[task] : undefined
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
      Restarts: before ? before.Restarts + 1 : 0,
    }
    const ticks = startTicksOf(process.pid)
    this.#manifest = {
      ...identity,
      DesiredStatus: 'run',
      ClientStatus: 'pending',
      CreateTime: previous?.CreateTime ?? Date.now() * 1e6,
      // Tasks of earlier runs stay known, so that their logs are still found.
      Tasks: previous ? withTasksLost(previous, Date.now()).Tasks : {},
      SupervisorPid: process.pid,
      ...(ticks === undefined ? {} : { SupervisorStartTicks: ticks }),
      KillTimeoutMs: options.killTimeoutMs,
    }
  }

  /** Writes the first manifest. Throws the system's error; the manifest of an earlier run is then still in place. */
  pending(): void {
    this.#write()
  }

  running(pid: number, startTicks: number | undefined): void {
    const started = { State: 'running', StartedAt: new Date().toISOString(), Pids: [pid] } as const
    this.#set('running', startTicks === undefined ? started : { ...started, PidStartTicks: startTicks })
  }

  /** Somebody asked for its end. */
  stopping(): void {
    this.#manifest = { ...this.#manifest, DesiredStatus: 'stop' }
    this.#save()
  }

  /** The command has ended, or could not be started. Resolves when that is on disk or cannot be written. */
  async finished(end: { exitCode: number; failed: boolean }): Promise<void> {
    const { PidStartTicks: _, ...task } = this.#task
    this.#task = task
    const finished = { State: 'dead', Failed: end.failed, FinishedAt: new Date().toISOString(), Pids: [] } as const
    this.#set(end.failed ? 'failed' : 'complete', { ...finished, ExitCode: end.exitCode })
    for (let tries = 1; this.#retry !== undefined && tries < FINAL_TRIES; tries++) {
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
