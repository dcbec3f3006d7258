/** JSON schemas of a server's responses, for the OpenAPI document: the fields that have a value in outpost. */
import { NODE_STATUSES } from '../roster/node-status.ts'
import { COUNT, FLAG, TEXT, type JsonSchema, listOf, map, orNull, record } from '../../platform/operation.ts'

const NANOSECONDS: JsonSchema = { ...COUNT, description: 'Nanoseconds since the epoch' }
const TIME: JsonSchema = { ...TEXT, format: 'date-time' }

const NODE_STUB = {
  Address: TEXT,
  Datacenter: TEXT,
  ID: TEXT,
  Name: TEXT,
  NodeClass: TEXT,
  NodePool: TEXT,
  Status: { ...TEXT, enum: NODE_STATUSES },
  StatusDescription: TEXT,
  Version: TEXT,
}

export const NODE_LIST: JsonSchema = listOf(record(NODE_STUB))

export const NODE: JsonSchema = record({
  Attributes: map(TEXT),
  Datacenter: TEXT,
  Events: listOf(record({ Message: TEXT, Subsystem: TEXT, Timestamp: TIME })),
  HTTPAddr: TEXT,
  ID: TEXT,
  Meta: map(TEXT),
  Name: TEXT,
  NodeClass: TEXT,
  NodePool: TEXT,
  Status: NODE_STUB.Status,
  StatusDescription: TEXT,
  StatusUpdatedAt: { ...COUNT, description: 'Seconds since the epoch' },
})

const TASK_EVENT = record({ Details: map(TEXT), DisplayMessage: TEXT, Time: NANOSECONDS, Type: TEXT })
const TASK_STATE = record({
  Events: orNull(listOf(TASK_EVENT)),
  Failed: FLAG,
  FinishedAt: orNull(TIME),
  Restarts: COUNT,
  StartedAt: orNull(TIME),
  State: { ...TEXT, enum: ['pending', 'running', 'dead'] },
})

const ALLOCATION_STUB = {
  ClientDescription: TEXT,
  ClientStatus: { ...TEXT, enum: ['pending', 'running', 'complete', 'failed', 'lost', 'unknown'] },
  CreateTime: NANOSECONDS,
  DesiredStatus: TEXT,
  ID: TEXT,
  JobID: TEXT,
  ModifyTime: NANOSECONDS,
  Name: TEXT,
  Namespace: TEXT,
  NodeID: TEXT,
  NodeName: TEXT,
  TaskGroup: TEXT,
  TaskStates: orNull(map(TASK_STATE)),
}

export const ALLOCATION: JsonSchema = record(ALLOCATION_STUB)
export const ALLOCATION_LIST: JsonSchema = listOf(ALLOCATION)

const JOB_COUNTS = map(COUNT)

export const JOB_LIST: JsonSchema = listOf(
  record({
    ID: TEXT,
    JobSummary: record({ Summary: map(JOB_COUNTS) }),
    Name: TEXT,
    Namespace: TEXT,
    Status: TEXT,
    SubmitTime: NANOSECONDS,
    Type: TEXT,
  }),
)

export const SERVER_LIST: JsonSchema = listOf(
  record({
    ID: TEXT,
    Name: TEXT,
    Version: TEXT,
    Address: TEXT,
    HasCore: FLAG,
    CoreState: TEXT,
    ClusterID: TEXT,
    Role: TEXT,
    Position: COUNT,
    Lag: COUNT,
    IsSelf: FLAG,
    SecondsSinceAnnouncement: COUNT,
    Status: TEXT,
  }),
)
