/** `/v1/jobs` and what is below one job: jobs are what allocations name (nomad-job.ts). */
import { Refusal } from '../../platform/errors.ts'
import { type Call, handle, type Identity, type RoomEndpoint } from '../../platform/operation.ts'
import { pathParam, queryBoolean, queryText, schema } from '../../platform/schema.ts'
import { allocationLooks } from './allocations-operations.ts'
import { type JobAllocations, jobKey } from '../roster/roster-queries.ts'
import { list, readOne } from './listing.ts'
import { JOB_FILTER_FIELDS, jobOf, jobStub, jobSummary } from './nomad-job.ts'
import type { AllocationRecord } from '../roster/roster-records.ts'
import { inOrder, type ServerParts } from './nodes-operations.ts'
import {
  LIST_ENDPOINT,
  listFields,
  namespaceField,
  READ_ENDPOINT,
  readFields,
  type ReadInput,
  requireNamespace,
  requireRegion,
} from './query.ts'

const jobsFields = {
  ...listFields,
  prefix: queryText({ description: 'What job IDs begin with', fallback: '' }),
  namespace: namespaceField,
}

export const jobs = handle(
  {
    name: 'server.jobs',
    summary: 'The jobs that allocations name',
    http: ['GET /v1/jobs'],
    ...LIST_ENDPOINT,
    input: schema(jobsFields),
    longPoll: (input) => input.index > 0,
    authorize: (input, identity) => requireNamespace(input.namespace, identity, 'list-jobs'),
  },
  ({ queries, region }: ServerParts) => ({
    run(input, call) {
      requireRegion(input.region, region)
      const { identity } = call
      const isSeen = ({ namespace, id }: JobAllocations) =>
        id.startsWith(input.prefix) &&
        (input.namespace === '*' ? identity.allowsNamespace(namespace, 'list-jobs') : namespace === input.namespace)
      return list(
        queries,
        {
          topic: { kind: 'allocations' },
          records: (from) =>
            queries.jobs({ from: from === undefined ? undefined : keyOf(from), reverse: input.reverse }),
          isSeen,
          tokenOf: ({ namespace, id }) => `${namespace}.${id}`,
          text: (job) => JSON.stringify(jobStub(job)),
          filtered: { fields: JOB_FILTER_FIELDS, value: jobStub },
        },
        input,
        call,
      )
    },
  }),
)

/** A token is namespace and ID; the first dot parts them, since a namespace has none. */
function keyOf(token: string): string {
  const dot = token.indexOf('.')
  if (dot < 0) throw new Refusal('invalid_request', 'next_token is not one of this list')
  return jobKey(token.slice(0, dot), token.slice(dot + 1))
}

const id = pathParam('ID of the job, percent-encoded where it has slashes')
const jobFields = { id, ...readFields, namespace: namespaceField }

/** An endpoint below one job that gives one value, made from the job's allocations. */
function jobReading(
  about: { readonly name: string; readonly summary: string; readonly path: string },
  value: (job: JobAllocations) => unknown,
): RoomEndpoint<ServerParts> {
  return handle(
    {
      name: `server.${about.name}`,
      summary: about.summary,
      http: [`GET /v1/job/:id${about.path}`],
      ...READ_ENDPOINT,
      input: schema(jobFields),
      longPoll: (input) => input.index > 0,
      authorize: (input, identity) => requireJob(input, identity),
    },
    ({ queries, region }: ServerParts) => ({
      async run(input, call) {
        requireRegion(input.region, region)
        const find = () => {
          const found = queries.job(input.namespace, input.id)
          return found && value(found)
        }
        return readOne(queries, queryOf(input, call), find, 'job not found')
      },
    }),
  )
}

function queryOf(input: ReadInput & { readonly namespace: string; readonly id: string }, call: Call) {
  return { topic: { kind: 'job', namespace: input.namespace, id: input.id } as const, input, call }
}

/** One job is in one namespace. */
export function requireJob({ namespace }: { readonly namespace: string }, identity: Identity): void {
  if (namespace === '*') throw new Refusal('invalid_request', 'give the namespace of the job, not *')
  requireNamespace(namespace, identity, 'read-job')
}

const jobAllocationsFields = {
  id,
  ...listFields,
  namespace: namespaceField,
  all: queryBoolean({ description: 'Accepted; there are no earlier jobs of the same ID', fallback: false }),
}

export const jobAllocations = handle(
  {
    name: 'server.job_allocations',
    summary: 'The allocations of one job; none for a job that nobody names',
    http: ['GET /v1/job/:id/allocations'],
    ...LIST_ENDPOINT,
    input: schema(jobAllocationsFields),
    longPoll: (input) => input.index > 0,
    authorize: (input, identity) => requireJob(input, identity),
  },
  ({ queries, region }: ServerParts) => ({
    run(input, call) {
      requireRegion(input.region, region)
      const { topic } = queryOf(input, call)
      const { namespace, id: jobId } = input
      return list(
        queries,
        {
          topic,
          records(from) {
            const { allocations } = queries.job(namespace, jobId) ?? {
              allocations: new Map<string, AllocationRecord>(),
            }
            const part = { records: allocations.values(), size: allocations.size }
            return inOrder(queries, part, { from, reverse: input.reverse })
          },
          isSeen: ({ allocation }) => allocation.jobId === jobId && allocation.namespace === namespace,
          ...allocationLooks(queries.roster, { resources: false, taskStates: true }),
        },
        input,
        call,
      )
    },
  }),
)

export const jobSummaryReading = jobReading(
  { name: 'job_summary', path: '/summary', summary: 'How many allocations of a job are in which state' },
  jobSummary,
)

// There is no scheduler here: these are what `nomad job status` asks for beside the job.
export const jobEvaluations = jobReading(
  { name: 'job_evaluations', path: '/evaluations', summary: 'Always none: nothing is scheduled here' },
  () => [],
)
export const jobDeployment = jobReading(
  { name: 'job_deployment', path: '/deployment', summary: 'Always null: nothing is deployed here' },
  () => null,
)

export const job = jobReading({ name: 'job', path: '', summary: 'One job, as far as its allocations tell' }, jobOf)
