/**
 * Jobs in the JSON format of stock clients, derived from allocations: groups, tasks, numbers of running allocations. Jobs are not
 * submitted, so a job exists while at least one allocation names it.
 */
import type { JobAllocations, JobGroup } from '../roster/roster-queries.ts'

export interface JobFacts {
  readonly namespace: string
  readonly id: string
  readonly groups: ReadonlyMap<string, { readonly count: number; readonly tasks: readonly string[] }>
  readonly status: 'pending' | 'running' | 'dead'
  readonly submitTimeMs: number
  readonly createIndex: number
  readonly modifyIndex: number
}

/** The complete record. */
export function jobValue(job: JobFacts): Record<string, unknown> {
  return {
    Affinities: null,
    AllAtOnce: false,
    Constraints: null,
    ConsulNamespace: '',
    ConsulToken: '',
    CreateIndex: job.createIndex,
    Datacenters: ['*'],
    DispatchIdempotencyToken: '',
    Dispatched: false,
    ID: job.id,
    JobModifyIndex: job.createIndex,
    Meta: null,
    Migrate: null,
    ModifyIndex: job.modifyIndex,
    Multiregion: null,
    Name: job.id,
    Namespace: job.namespace,
    NodePool: 'default',
    ParameterizedJob: null,
    ParentID: '',
    Payload: null,
    Periodic: null,
    Priority: 50,
    Region: '',
    Spreads: null,
    Stable: true,
    Status: job.status,
    StatusDescription: '',
    Stop: job.status === 'dead',
    SubmitTime: Math.round(job.submitTimeMs) * 1e6,
    TaskGroups: [...job.groups].map(([name, group]) => groupValue(name, group)),
    Type: 'service',
    UI: null,
    Update: null,
    VaultNamespace: '',
    VaultToken: '',
    Version: 0,
    VersionTag: null,
  }
}

function groupValue(name: string, { count, tasks }: { count: number; tasks: readonly string[] }): unknown {
  return {
    Affinities: null,
    Constraints: null,
    Count: count,
    EphemeralDisk: { Migrate: false, SizeMB: 0, Sticky: false },
    Meta: null,
    Name: name,
    Networks: null,
    RestartPolicy: null,
    Services: null,
    Tasks: tasks.map((task) => taskValue(task)),
    Volumes: null,
  }
}

function taskValue(name: string): unknown {
  const resources = { CPU: 0, Cores: 0, Devices: null, DiskMB: 0, IOPS: 0, MemoryMB: 0, MemoryMaxMB: 0, Networks: null }
  return {
    Config: null,
    Driver: '',
    Env: null,
    KillTimeout: 0,
    Leader: false,
    Lifecycle: null,
    LogConfig: { Disabled: false, MaxFileSizeMB: 10, MaxFiles: 10 },
    Meta: null,
    Name: name,
    Resources: resources,
    User: '',
  }
}

type JobStatus = 'pending' | 'running' | 'dead'

function statusOf({ groups }: JobAllocations): JobStatus {
  let status: JobStatus = 'dead'
  for (const { counts } of groups.values()) {
    if (counts.has('running') || counts.has('unknown')) return 'running'
    if (counts.has('pending')) status = 'pending'
  }
  return status
}

/** Statuses of allocations that have not ended, as far as this server knows. */
const LIVE = ['running', 'pending', 'unknown'] as const

/** Name of the counter for each client status. */
const COUNTER_NAMES = {
  pending: 'Starting',
  running: 'Running',
  complete: 'Complete',
  failed: 'Failed',
  lost: 'Lost',
  unknown: 'Unknown',
} as const

function countsOf({ counts }: JobGroup): Record<string, number> {
  const named: Record<string, number> = {
    Complete: 0,
    Failed: 0,
    Lost: 0,
    Queued: 0,
    Running: 0,
    Starting: 0,
    Unknown: 0,
  }
  for (const [status, count] of counts) named[COUNTER_NAMES[status]] = count
  return named
}

/** The complete record, derived from the job's allocations. */
export function jobOf(job: JobAllocations): Record<string, unknown> {
  const { namespace, id, createIndex, modifyIndex, createTimeMs: submitTimeMs } = job
  const groups = new Map<string, { count: number; tasks: string[] }>()
  for (const [name, { counts, tasks }] of job.groups) {
    const count = LIVE.reduce((sum, status) => sum + (counts.get(status) ?? 0), 0)
    groups.set(name, { count, tasks: [...tasks.keys()] })
  }
  return jobValue({ namespace, id, groups, status: statusOf(job), submitTimeMs, createIndex, modifyIndex })
}

/** Number of allocations by group and client status. */
export function jobSummary(job: JobAllocations): Record<string, unknown> {
  return {
    Children: { Dead: 0, Pending: 0, Running: 0 },
    CreateIndex: job.createIndex,
    JobID: job.id,
    ModifyIndex: job.modifyIndex,
    Namespace: job.namespace,
    Summary: Object.fromEntries([...job.groups].map(([name, group]) => [name, countsOf(group)])),
  }
}

/** A job in a list. */
export function jobStub(job: JobAllocations): Record<string, unknown> {
  const status = statusOf(job)
  return {
    CreateIndex: job.createIndex,
    Datacenters: ['*'],
    ID: job.id,
    JobModifyIndex: job.createIndex,
    JobSummary: jobSummary(job),
    ModifyIndex: job.modifyIndex,
    Multiregion: null,
    Name: job.id,
    Namespace: job.namespace,
    NodePool: 'default',
    ParameterizedJob: false,
    ParentID: '',
    Periodic: false,
    Priority: 50,
    Status: status,
    StatusDescription: '',
    Stop: status === 'dead',
    SubmitTime: Math.round(job.createTimeMs) * 1e6,
    Type: 'service',
  }
}

export const JOB_FILTER_FIELDS: ReadonlySet<string> = new Set(
  (
    'CreateIndex Datacenters ID JobModifyIndex JobSummary ModifyIndex Name Namespace NodePool ' +
    'ParameterizedJob ParentID Periodic Priority Status StatusDescription Stop SubmitTime Type'
  ).split(' '),
)
