/**
 * Allocations in the JSON format of stock clients: the stub of a list, and the complete record with its job. Fields that only a
 * scheduler could fill (evaluations, deployments, placement metrics, reserved resources) have their empty values and are always
 * present, because clients dereference them without a check.
 */
import type { AllocationDescription, TaskDescription } from '../roster/node-messages.ts'
import { type AllocationRecord, statusOf } from '../roster/roster-records.ts'
import { jobValue } from './nomad-job.ts'
import { timeText } from './nomad-node.ts'

const NANOSECONDS_PER_MS = 1e6

export interface AllocationStubOptions {
  readonly resources: boolean
  readonly taskStates: boolean
}

/** An allocation in a list. */
export function allocationStub(
  record: AllocationRecord,
  nodeName: string,
  { resources, taskStates }: AllocationStubOptions,
): Record<string, unknown> {
  const { allocation } = record
  return {
    ...(resources ? { AllocatedResources: allocatedResources(allocation) } : {}),
    ClientDescription: describe(record),
    ClientStatus: statusOf(record),
    CreateIndex: record.createIndex,
    CreateTime: nanoseconds(allocation.createTimeMs),
    DeploymentStatus: null,
    DesiredDescription: '',
    DesiredStatus: allocation.desiredStatus,
    DesiredTransition: NO_TRANSITION,
    EvalID: '',
    FollowupEvalID: '',
    ID: allocation.id,
    JobID: allocation.jobId,
    JobType: 'service',
    JobVersion: 0,
    ModifyIndex: record.modifyIndex,
    ModifyTime: nanoseconds(record.modifyTimeMs),
    Name: allocation.name,
    Namespace: allocation.namespace,
    NextAllocation: '',
    NodeID: record.nodeId,
    NodeName: nodeName,
    PreemptedAllocations: null,
    PreemptedByAllocation: '',
    RescheduleTracker: null,
    TaskGroup: allocation.taskGroup,
    TaskStates: taskStates ? statesOf(allocation) : null,
  }
}

/** The complete record. Events omit the job (`withJob` false). */
export function allocationValue(record: AllocationRecord, nodeName: string, withJob = true): Record<string, unknown> {
  const { allocation } = record
  const {
    JobType: _,
    JobVersion: __,
    ...stub
  } = allocationStub(record, nodeName, { resources: true, taskStates: true })
  return {
    AllocModifyIndex: record.modifyIndex,
    ...stub,
    DeploymentID: '',
    Job: withJob ? jobOfAllocation(record) : null,
    Metrics: METRICS,
    NetworkStatus: null,
    PreviousAllocation: '',
    Resources: RESOURCES,
    SharedResources: RESOURCES,
    SignedIdentities: null,
    TaskResources: Object.fromEntries(allocation.tasks.map(({ name }) => [name, RESOURCES])),
  }
}

function jobOfAllocation({ allocation, createIndex, modifyIndex }: AllocationRecord): Record<string, unknown> {
  return jobValue({
    namespace: allocation.namespace,
    id: allocation.jobId,
    groups: new Map([[allocation.taskGroup, { count: 1, tasks: allocation.tasks.map(({ name }) => name) }]]),
    status: isEnded(allocation) ? 'dead' : 'running',
    submitTimeMs: allocation.createTimeMs,
    createIndex,
    modifyIndex,
  })
}

export function isEnded({ clientStatus }: AllocationDescription): boolean {
  return clientStatus !== 'pending' && clientStatus !== 'running'
}

/** Fields for filter expressions. Expensive ones are computed on access. */
export function filteredAllocation(record: AllocationRecord, nodeName: string): Record<string, unknown> {
  const { allocation } = record
  return {
    get AllocatedResources() {
      return allocatedResources(allocation)
    },
    ClientDescription: describe(record),
    ClientStatus: statusOf(record),
    CreateIndex: record.createIndex,
    CreateTime: nanoseconds(allocation.createTimeMs),
    DesiredDescription: '',
    DesiredStatus: allocation.desiredStatus,
    EvalID: '',
    ID: allocation.id,
    JobID: allocation.jobId,
    JobType: 'service',
    JobVersion: 0,
    ModifyIndex: record.modifyIndex,
    ModifyTime: nanoseconds(record.modifyTimeMs),
    Name: allocation.name,
    Namespace: allocation.namespace,
    NodeID: record.nodeId,
    NodeName: nodeName,
    TaskGroup: allocation.taskGroup,
    get TaskStates() {
      return statesOf(allocation)
    },
  }
}

export const ALLOCATION_FILTER_FIELDS: ReadonlySet<string> = new Set(
  (
    'AllocatedResources ClientDescription ClientStatus CreateIndex CreateTime DesiredDescription ' +
    'DesiredStatus EvalID ID JobID JobType JobVersion ModifyIndex ModifyTime Name Namespace NodeID ' +
    'NodeName TaskGroup TaskStates'
  ).split(' '),
)

function nanoseconds(ms: number): number {
  return Math.round(ms) * NANOSECONDS_PER_MS
}

function describe(record: AllocationRecord): string {
  return DESCRIPTIONS[statusOf(record)]
}

const DESCRIPTIONS = {
  pending: 'No tasks have started',
  running: 'Tasks are running',
  complete: 'All tasks have completed',
  failed: 'Failed tasks',
  lost: 'Allocation is lost',
  unknown: 'alloc is unknown since its node is down',
}

function statesOf({ tasks }: AllocationDescription): Record<string, unknown> {
  return Object.fromEntries(tasks.map((task) => [task.name, stateOf(task)]))
}

function stateOf(task: TaskDescription): Record<string, unknown> {
  const { state, failed, startedAtMs, finishedAtMs } = task
  return {
    Events: eventsOf(task),
    Failed: failed,
    FinishedAt: timeOrNull(finishedAtMs),
    LastRestart: null,
    Paused: '',
    Restarts: 0,
    StartedAt: timeOrNull(startedAtMs),
    State: state,
  }
}

function timeOrNull(ms: number | undefined): string | null {
  return ms === undefined ? null : timeText(ms)
}

function eventsOf({ exitCode, failed, finishedAtMs, startedAtMs }: TaskDescription): unknown[] {
  const events: unknown[] = []
  if (startedAtMs !== undefined) events.push(eventOf('Started', startedAtMs, 'Task started'))
  if (finishedAtMs === undefined) return events
  const ended = failed ? 'Task failed' : 'Task ended'
  const [text, details] =
    exitCode === undefined ? [ended, {}] : [`${ended}, exit code ${exitCode}`, { exit_code: String(exitCode) }]
  events.push(eventOf('Terminated', finishedAtMs, text, details))
  return events
}

function eventOf(type: string, atMs: number, message: string, details = {}): Record<string, unknown> {
  return { Details: details, DisplayMessage: message, Message: '', Time: nanoseconds(atMs), Type: type }
}

function allocatedResources({ tasks }: AllocationDescription): unknown {
  const none = {
    Cpu: { CpuShares: 0, ReservedCores: null },
    Devices: null,
    Memory: { MemoryMB: 0, MemoryMaxMB: 0 },
    Networks: null,
  }
  return {
    Shared: { DiskMB: 0, Networks: null, Ports: null },
    TaskLifecycles: Object.fromEntries(tasks.map(({ name }) => [name, null])),
    Tasks: Object.fromEntries(tasks.map(({ name }) => [name, none])),
  }
}

const NO_TRANSITION = {
  ForceReschedule: null,
  Migrate: null,
  MigrateDisablePlacement: null,
  NoShutdownDelay: null,
  Reschedule: null,
}

const RESOURCES = {
  CPU: 0,
  Cores: 0,
  Devices: null,
  DiskMB: 0,
  IOPS: 0,
  MemoryMB: 0,
  MemoryMaxMB: 0,
  NUMA: null,
  Networks: null,
  SecretsMB: 0,
}

const METRICS = {
  AllocationTime: 0,
  ClassExhausted: null,
  ClassFiltered: null,
  CoalescedFailures: 0,
  ConstraintFiltered: null,
  DimensionExhausted: null,
  NodesAvailable: null,
  NodesEvaluated: 0,
  NodesExhausted: 0,
  NodesFiltered: 0,
  NodesInPool: 0,
  QuotaExhausted: null,
  ResourcesExhausted: null,
  ScoreMetaData: null,
  Scores: null,
}
