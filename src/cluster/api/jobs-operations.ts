/** `/v1/jobs` and the endpoints of one job. Jobs are derived from allocations (nomad-job.ts). */
import { Refusal } from '../../platform/errors.ts'
import { type Call, handle, type Identity, type EndpointBinding } from '../../platform/operation.ts'
import { pathParam, queryBoolean, queryText, schema } from '../../platform/schema.ts'
import { type JobAllocations, jobKey } from '../roster/roster-queries.ts'
import type { AllocationRecord } from '../roster/roster-records.ts'
import { allocationFormat, sortedAllocations } from './allocations-operations.ts'
import { readOne, streamList } from './listing.ts'
import { JOB_FILTER_FIELDS, jobOf, jobStub, jobSummary } from './nomad-job.ts'
import {
  LIST_ENDPOINT,
  listFields,
  namespaceField,
  READ_ENDPOINT,
  readFields,
  type ReadInput,
  requireNamespace,
  requireRegion,
  type ServerDeps,
} from './query.ts'
import { JOB_LIST } from './result-schemas.ts'

const jobsFields = {
  ...listFields,
  prefix: queryText({ description: 'Prefix of the job IDs', fallback: '' }),
  namespace: namespaceField,
}

export const jobs = handle(
  {
    name: 'server.jobs',
    summary: 'List jobs',
    http: ['GET /v1/jobs'],
    ...LIST_ENDPOINT,
    result: JOB_LIST,
    input: schema(jobsFields),
    longPoll: (input) => input.index > 0,
    authorize: (input, identity) => requireNamespace(input.namespace, identity, 'list-jobs'),
  },
  ({ queries, region }: ServerDeps) => ({
    run(input, call) {
      requireRegion(input.region, region)
      const { identity } = call
      const isVisible = ({ namespace, id }: JobAllocations) =>
        id.startsWith(input.prefix) &&
        (input.namespace === '*' ? identity.allowsNamespace(namespace, 'list-jobs') : namespace === input.namespace)
      return streamList(
        queries,
        {
          topic: { kind: 'allocations' },
          records: (from) =>
            queries.jobs({ from: from === undefined ? undefined : keyOf(from), reverse: input.reverse }),
          isVisible,
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

/** A token is namespace and ID, separated by the first dot, because a namespace contains none. */
function keyOf(token: string): string {
  const dot = token.indexOf('.')
  if (dot < 0) throw new Refusal('invalid_request', 'next_token is not a token of this list')
  return jobKey(token.slice(0, dot), token.slice(dot + 1))
}

const id = pathParam('Job ID, percent-encoded if it contains slashes')
const jobFields = { id, ...readFields, namespace: namespaceField }

/** An endpoint of one job that answers with a value derived from the job's allocations. */
function jobEndpoint(
  about: { readonly name: string; readonly summary: string; readonly path: string },
  value: (job: JobAllocations) => unknown,
): EndpointBinding<ServerDeps> {
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
    ({ queries, region }: ServerDeps) => ({
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

/** A job has one namespace, so `*` is refused. */
export function requireJob({ namespace }: { readonly namespace: string }, identity: Identity): void {
  if (namespace === '*') throw new Refusal('invalid_request', 'specify the namespace of the job, not *')
  requireNamespace(namespace, identity, 'read-job')
}

const jobAllocationsFields = {
  id,
  ...listFields,
  namespace: namespaceField,
  all: queryBoolean({ description: 'No effect: there are no earlier jobs with the same ID', fallback: false }),
}

export const jobAllocations = handle(
  {
    name: 'server.job_allocations',
    summary: 'List the allocations of a job; empty for an unknown job',
    http: ['GET /v1/job/:id/allocations'],
    ...LIST_ENDPOINT,
    input: schema(jobAllocationsFields),
    longPoll: (input) => input.index > 0,
    authorize: (input, identity) => requireJob(input, identity),
  },
  ({ queries, region }: ServerDeps) => ({
    run(input, call) {
      requireRegion(input.region, region)
      const { topic } = queryOf(input, call)
      const { namespace, id: jobId } = input
      return streamList(
        queries,
        {
          topic,
          records(from) {
            const { allocations } = queries.job(namespace, jobId) ?? {
              allocations: new Map<string, AllocationRecord>(),
            }
            const set = { records: allocations.values(), size: allocations.size }
            return sortedAllocations(queries, set, { from, reverse: input.reverse })
          },
          isVisible: ({ allocation }) => allocation.jobId === jobId && allocation.namespace === namespace,
          ...allocationFormat(queries.roster, { resources: false, taskStates: true }),
        },
        input,
        call,
      )
    },
  }),
)

export const jobSummaryEndpoint = jobEndpoint(
  { name: 'job_summary', path: '/summary', summary: 'Count the allocations of a job by state' },
  jobSummary,
)

// Without a scheduler these are empty; `nomad job status` requests them.
export const jobEvaluations = jobEndpoint(
  { name: 'job_evaluations', path: '/evaluations', summary: 'Always empty: there is no scheduler' },
  () => [],
)
export const jobDeployment = jobEndpoint(
  { name: 'job_deployment', path: '/deployment', summary: 'Always null: there are no deployments' },
  () => null,
)

export const job = jobEndpoint({ name: 'job', path: '', summary: 'Read a job, as derived from its allocations' }, jobOf)
