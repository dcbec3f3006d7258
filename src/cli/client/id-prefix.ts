/**
 * Completes the beginning of an ID, as the `nomad` command does: at least two characters, resolved by the agent or server
 * that is addressed. Servers take an even number of hexadecimal digits only; an odd one is rounded down for the request, and
 * the matches are compared with all that was given.
 */
import type { AgentTarget } from './agent-target.ts'
import { type Answer, fieldsOf } from '../output/answer.ts'
import { CommandError, type CommandIo } from '../framework/command-shape.ts'
import { equals, listRecords } from './list-pages.ts'
import { isUuid } from '../../platform/schema.ts'
import { shownName } from '../framework/shown.ts'
import { formatTable } from '../output/table.ts'

const CHARACTERS_MIN = 2
const SHORT_LENGTH = 8
const NIL_UUID = '00000000-0000-0000-0000-000000000000'
/** Matches that an error lists. */
const SHOWN_MAX = 20

interface Kind {
  readonly what: 'allocation' | 'node' | 'job'
  readonly columns: readonly string[]
  cells(record: Answer): readonly string[]
}

const ALLOCATION: Kind = {
  what: 'allocation',
  columns: ['ID', 'Job', 'Node', 'Status'],
  cells: (record) => ['ID', 'JobID', 'NodeName', 'ClientStatus'].map((key) => shownName(record.text(key))),
}
const NODE: Kind = {
  what: 'node',
  columns: ['ID', 'Name', 'Status'],
  cells: (record) => ['ID', 'Name', 'Status'].map((key) => shownName(record.text(key))),
}

const JOB: Kind = {
  what: 'job',
  columns: ['ID', 'Namespace', 'Status'],
  cells: (record) => ['ID', 'Namespace', 'Status'].map((key) => shownName(record.text(key))),
}

/** The full ID of the one allocation whose ID begins with `given`. A full ID is not looked up. Throws CommandError. */
export async function findAllocation(target: AgentTarget, given: string, io: CommandIo): Promise<string> {
  if (isUuid(given)) return given.toLowerCase()
  requireLength(given)
  const matches = await matching(target, '/v1/allocations', given, { namespace: '*', task_states: false })
  return only(matches, { kind: ALLOCATION, given, asked: 'prefix', target, io }).text('ID')
}

/** The full ID of the one node whose ID begins with `given` or whose name it is. A full ID is not looked up. Throws CommandError. */
export async function findNode(target: AgentTarget, given: string, io: CommandIo): Promise<string> {
  if (isUuid(given)) return given.toLowerCase()
  const named = await listRecords(target, '/v1/nodes', { filter: equals('Name', given) })
  if (named.length === 0) requireLength(given)
  const begun = given.length < CHARACTERS_MIN ? [] : await matching(target, '/v1/nodes', given, {})
  const all = new Map([...named.map(fieldsOf), ...begun].map((record) => [record.text('ID'), record]))
  return only([...all.values()], { kind: NODE, given, asked: 'ID prefix or name', target, io }).text('ID')
}

/**
 * The one job with this ID, else the one whose ID begins with it. Without `namespace`, in all namespaces that the token may list.
 * Throws CommandError.
 */
export async function findJob(
  target: AgentTarget,
  { given, namespace }: { readonly given: string; readonly namespace: string | undefined },
  io: CommandIo,
): Promise<Answer> {
  const records = await listRecords(target, '/v1/jobs', { prefix: given, namespace: namespace ?? '*' })
  const begun = records.map(fieldsOf)
  const exact = begun.filter((job) => job.text('ID') === given)
  const hint = exact.length > 1 ? 'give -namespace' : 'give more of the ID'
  return only(exact.length > 0 ? exact : begun, { kind: JOB, given, asked: 'ID or prefix', target, io, hint })
}

function requireLength(given: string): void {
  if (given.length >= CHARACTERS_MIN) return
  throw new CommandError(`the ID prefix ${JSON.stringify(given)} is too short, give at least two characters`)
}

/** Nothing for what is no beginning of a UUID. */
async function matching(
  target: AgentTarget,
  path: string,
  given: string,
  query: Readonly<Record<string, string | boolean>>,
): Promise<Answer[]> {
  const digits = given.toLowerCase().replaceAll('-', '')
  if (!/^[0-9a-f]{2,32}$/.test(digits) || !isBeginning(given)) return []
  const prefix = digits.slice(0, digits.length - (digits.length % 2))
  const records = await listRecords(target, path, { ...query, prefix })
  return records.map(fieldsOf).filter((record) => record.text('ID').replaceAll('-', '').startsWith(digits))
}

/** Hyphens stand where a UUID has them, or there are none. */
function isBeginning(given: string): boolean {
  return !given.includes('-') || isUuid(given + NIL_UUID.slice(given.length))
}

interface Search {
  readonly kind: Kind
  readonly given: string
  readonly asked: string
  readonly target: AgentTarget
  readonly io: CommandIo
  /** What to do about several matches. */
  readonly hint?: string
}

/** Throws CommandError unless there is one match; several are listed on stderr. */
function only(matches: readonly Answer[], search: Search): Answer {
  const { kind, given, asked, target, io, hint = 'give more of the ID' } = search
  const [first, ...others] = matches
  if (!first) throw new CommandError(`no ${kind.what} with ${asked} ${JSON.stringify(given)} at ${target.url.origin}`)
  if (others.length === 0) return first
  io.err(
    formatTable(
      kind.columns,
      matches.slice(0, SHOWN_MAX).map((record) => kind.cells(record)),
    ),
  )
  const left = matches.length - SHOWN_MAX
  if (left > 0) io.err(`and ${left} more\n`)
  throw new CommandError(`${JSON.stringify(given)} matches ${matches.length} ${kind.what}s, ${hint}`)
}

/**
 * How IDs of a list are shown: the first eight characters, or as many more as it takes to tell them apart. An ID that is
 * not in `ids` is shown in full.
 */
export function shortIdsOf(ids: readonly string[]): (id: string) => string {
  const sorted = [...ids].sort()
  let length = SHORT_LENGTH
  for (let at = 1; at < sorted.length; at++) {
    length = Math.max(length, commonLength(sorted[at - 1] ?? '', sorted[at] ?? '') + 1)
  }
  // A prefix of an odd number of digits is understood by outpost only.
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
