/**
 * Resolves ID prefixes of at least two characters with the addressed agent or server, as `nomad` does. Servers accept an even number
 * of hexadecimal digits only: an odd number is rounded down for the request, and the matches are compared with the full prefix.
 */
import { isUuid } from '../../platform/schema.ts'
import { CommandError, type CommandIo } from '../framework/define-command.ts'
import { text } from '../framework/options.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { type JsonFields, fieldsOf } from '../output/json.ts'
import { formatTable } from '../output/table.ts'
import type { AgentTarget } from './agent-target.ts'
import { equals, listRecords } from './http-client.ts'

const CHARACTERS_MIN = 2
const SHORT_LENGTH = 8
const NIL_UUID = '00000000-0000-0000-0000-000000000000'
/** Matches that an error lists. */
const SHOWN_MAX = 20

interface RecordKind {
  readonly noun: 'allocation' | 'node' | 'job'
  readonly columns: readonly string[]
  cells(record: JsonFields): readonly string[]
}

const ALLOCATION: RecordKind = {
  noun: 'allocation',
  columns: ['ID', 'Job', 'Node', 'Status'],
  cells: (record) => ['ID', 'JobID', 'NodeName', 'ClientStatus'].map((key) => escapeLine(record.text(key))),
}
const NODE: RecordKind = {
  noun: 'node',
  columns: ['ID', 'Name', 'Status'],
  cells: (record) => ['ID', 'Name', 'Status'].map((key) => escapeLine(record.text(key))),
}

const JOB: RecordKind = {
  noun: 'job',
  columns: ['ID', 'Namespace', 'Status'],
  cells: (record) => ['ID', 'Namespace', 'Status'].map((key) => escapeLine(record.text(key))),
}

/** The full ID of the only allocation with the prefix `given`. A full ID is not requested. Throws CommandError. */
export async function findAllocation(target: AgentTarget, given: string, io: CommandIo): Promise<string> {
  if (isUuid(given)) return given.toLowerCase()
  requireLength(given)
  const matches = await matching(target, '/v1/allocations', given, { namespace: '*', task_states: false })
  return only(matches, { kind: ALLOCATION, given, accepted: 'ID prefix', target, io }).text('ID')
}

/** The full ID of the only node with the ID prefix or name `given`. A full ID is not requested. Throws CommandError. */
export async function findNode(target: AgentTarget, given: string, io: CommandIo): Promise<string> {
  if (isUuid(given)) return given.toLowerCase()
  const named = await listRecords(target, '/v1/nodes', { filter: equals('Name', given) })
  if (named.length === 0) requireLength(given)
  const prefixed = given.length < CHARACTERS_MIN ? [] : await matching(target, '/v1/nodes', given, {})
  const all = new Map([...named.map(fieldsOf), ...prefixed].map((record) => [record.text('ID'), record]))
  return only([...all.values()], { kind: NODE, given, accepted: 'ID prefix or name', target, io }).text('ID')
}

/**
 * The only job with this ID, else with this ID prefix. Without `namespace`, in all namespaces that the token may list. Throws
 * CommandError.
 */
export async function findJob(
  target: AgentTarget,
  { given, namespace }: { readonly given: string; readonly namespace: string | undefined },
  io: CommandIo,
): Promise<JsonFields> {
  const records = await listRecords(target, '/v1/jobs', { prefix: given, namespace: namespace ?? '*' })
  const prefixed = records.map(fieldsOf)
  const exact = prefixed.filter((job) => job.text('ID') === given)
  const hint = exact.length > 1 ? 'use -namespace' : 'use a longer prefix'
  return only(exact.length > 0 ? exact : prefixed, { kind: JOB, given, accepted: 'ID or ID prefix', target, io, hint })
}

function requireLength(given: string): void {
  if (given.length >= CHARACTERS_MIN) return
  throw new CommandError(`the ID prefix ${JSON.stringify(given)} is too short (minimum ${CHARACTERS_MIN} characters)`)
}

/** Empty if `given` is not a prefix of a UUID. */
async function matching(
  target: AgentTarget,
  path: string,
  given: string,
  query: Readonly<Record<string, string | boolean>>,
): Promise<JsonFields[]> {
  const digits = given.toLowerCase().replaceAll('-', '')
  if (!/^[0-9a-f]{2,32}$/.test(digits) || !isUuidPrefix(given)) return []
  const prefix = digits.slice(0, digits.length - (digits.length % 2))
  const records = await listRecords(target, path, { ...query, prefix })
  return records.map(fieldsOf).filter((record) => record.text('ID').replaceAll('-', '').startsWith(digits))
}

/** Hyphens are optional, but must be at the positions of a UUID. */
function isUuidPrefix(given: string): boolean {
  return !given.includes('-') || isUuid(given + NIL_UUID.slice(given.length))
}

interface PrefixSearch {
  readonly kind: RecordKind
  readonly given: string
  /** Accepted kinds of names, for messages. */
  readonly accepted: string
  readonly target: AgentTarget
  readonly io: CommandIo
  /** Next step for several matches. */
  readonly hint?: string
}

/** Throws CommandError unless there is exactly one match; several are listed on stderr. */
function only(matches: readonly JsonFields[], search: PrefixSearch): JsonFields {
  const { kind, given, accepted, target, io, hint = 'use a longer prefix' } = search
  const [first, ...others] = matches
  if (!first)
    throw new CommandError(`no ${kind.noun} with ${accepted} ${JSON.stringify(given)} at ${target.url.origin}`)
  if (others.length === 0) return first
  io.err(
    formatTable(
      kind.columns,
      matches.slice(0, SHOWN_MAX).map((record) => kind.cells(record)),
    ),
  )
  const left = matches.length - SHOWN_MAX
  if (left > 0) io.err(`and ${left} more\n`)
  throw new CommandError(`${JSON.stringify(given)} matches ${matches.length} ${kind.noun}s: ${hint}`)
}

/**
 * Short IDs for a list: eight characters, or more if required for uniqueness. An ID that is not in `ids` is not shortened.
 */
export function shortIdsOf(ids: readonly string[]): (id: string) => string {
  const sorted = [...ids].sort()
  let length = SHORT_LENGTH
  for (let at = 1; at < sorted.length; at++) {
    length = Math.max(length, commonLength(sorted[at - 1] ?? '', sorted[at] ?? '') + 1)
  }
  // Nomad does not accept prefixes with an odd number of digits.
  while (length < NIL_UUID.length && digitsIn(sorted[0] ?? '', length) % 2 !== 0) length++
  const known = new Set(ids)
  return (id) => (known.has(id) ? id.slice(0, length) : id)
}

function digitsIn(id: string, length: number): number {
  return id.slice(0, length).replaceAll('-', '').length
}

function commonLength(one: string, other: string): number {
  let length = 0
  while (length < one.length && one[length] === other[length]) length++
  return length
}

export const nodeIdOption = text({
  placeholder: 'NODE',
  help: 'Name or ID prefix of the node',
  fallback: undefined,
})

/** The query of a request for that node. Throws CommandError. */
export async function nodeQuery(
  target: AgentTarget,
  values: { readonly 'node-id': string | undefined },
  io: CommandIo,
): Promise<{ readonly node_id: string | undefined }> {
  const given = values['node-id']
  return { node_id: given === undefined ? undefined : await findNode(target, given, io) }
}
