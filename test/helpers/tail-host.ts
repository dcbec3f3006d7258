/**
 * Log streaming as in the daemon, in this process: one allocation with one task in a temporary directory, the real
 * operations and the real listener. Its parts are accessible to the test.
 */
import { mkdirSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import type { Allocation, Task } from '../../src/host/allocations/allocation.ts'
import { fsCat, fsReadAt } from '../../src/host/files/content.ts'
import { Followers } from '../../src/host/logs/follow/followers.ts'
import { fsLogs } from '../../src/host/logs/task-logs.ts'
import { fsStream } from '../../src/host/logs/file-stream.ts'
import { Listener } from '../../src/http/listener.ts'
import { Router } from '../../src/http/router.ts'
import { recordingLogger, nextId, root } from '../host/allocations/host-fixture.ts'
import { temporaryDirectory } from './temporary-directory.ts'

export const ALLOC_ID = '6f1c0b9e-2f0a-4a51-9d0c-0a1b2c3d4e5f'

export type Query = Readonly<Record<string, string | number | boolean>>

/** The files of one allocation, and requests for them. */
export interface TailAllocation {
  /** The directory of the allocation. */
  readonly directory: string
  readonly logs: string
  /** Host path of a log file. */
  log(index: number, type?: string): string
  logsUrl(query: Query): string
  streamUrl(path: string, query?: Query): string
}

export interface TailHost extends TailAllocation {
  readonly followers: Followers
  readonly listener: Listener
  readonly logger: ReturnType<typeof recordingLogger>
  readonly url: string
  /** Adds an allocation. */
  another(): TailAllocation
  /** Changes the first allocation. */
  change(over: Partial<Allocation>): void
}

const LIMITS = {
  connectionsPerClient: 0,
  headerBytesMax: 16_384,
  bodyBytesMax: 1 << 20,
  headTimeoutMs: 10_000,
  requestTimeoutMs: 90_000,
  idleTimeoutMs: 120_000,
  tlsHandshakeTimeoutMs: 5000,
  stallTimeoutMs: 300_000,
}

export function allocationIn(directory: string, over: Partial<Allocation> = {}): Allocation {
  return {
    id: ALLOC_ID,
    name: 'tail',
    namespace: 'default',
    jobId: 'tail',
    taskGroup: 'tail',
    desiredStatus: 'run',
    clientStatus: 'running',
    createTimeMs: 1,
    tasks: new Map([['web', taskOf('web')]]),
    directory,
    collected: false,
    ...over,
  }
}

/** A running task. */
export function taskOf(name: string, over: Partial<Task> = {}): Task {
  return {
    name,
    state: 'running',
    failed: false,
    startedAtMs: 1,
    finishedAtMs: undefined,
    pids: [],
    logsDisabled: false,
    maxFiles: 10,
    maxFileSizeMb: 10,
    ...over,
  }
}

export async function startTailHost(
  t: TestContext,
  options: { deletedStallMs?: number; limit?: number; stallTimeoutMs?: number } = {},
): Promise<TailHost> {
  const allocDir = realpathSync(temporaryDirectory(t))
  const table = new Map<string, Allocation>()
  const allocations = { get: (id: string) => table.get(id), all: () => table.values() }
  const logger = recordingLogger()
  const { deletedStallMs, limit = 0, stallTimeoutMs = LIMITS.stallTimeoutMs } = options
  const followers = new Followers({ limit, logger, ...(deletedStallMs === undefined ? {} : { deletedStallMs }) })
  const listener = new Listener({
    host: '127.0.0.1',
    port: 0,
    headers: [],
    router: new Router([
      fsStream.in({ allocations, followers }),
      fsLogs.in({ allocations, followers }),
      fsCat.in({ allocations }),
      fsReadAt.in({ allocations }),
    ]),
    logger,
    resolve: () => root,
    limits: { ...LIMITS, stallTimeoutMs },
  })
  const { port } = await listener.listen()
  t.after(() => listener.close())
  const url = `http://127.0.0.1:${port}`
  const another = () => {
    const id = table.size === 0 ? ALLOC_ID : nextId()
    const directory = join(allocDir, id)
    mkdirSync(join(directory, 'alloc/logs'), { recursive: true })
    table.set(id, allocationIn(directory, { id }))
    return filesOf(directory, `${url}/v1/client/fs`, id)
  }
  const change = (over: Partial<Allocation>) => {
    const known = table.get(ALLOC_ID)
    if (known) table.set(ALLOC_ID, { ...known, ...over })
  }
  return { ...another(), change, followers, listener, logger, url, another }
}

export function queryText(values: Query): string {
  return new URLSearchParams(
    Object.entries(values).map(([key, value]): [string, string] => [key, String(value)]),
  ).toString()
}

function filesOf(directory: string, url: string, id: string): TailAllocation {
  const logs = join(directory, 'alloc/logs')
  return {
    directory,
    logs,
    log: (index, type = 'stdout') => join(logs, `web.${type}.${index}`),
    logsUrl: (values) => `${url}/logs/${id}?${queryText({ task: 'web', type: 'stdout', ...values })}`,
    streamUrl: (path, values = {}) => `${url}/stream/${id}?${queryText({ path, offset: 0, ...values })}`,
  }
}
