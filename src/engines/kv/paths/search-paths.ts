/**
 * `search/`: finds secrets by a part of their name and by custom metadata, among those whose newest version or metadata the
 * caller may read. Custom metadata is matched and returned only if the caller may read the metadata.
 */
import { type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { inPath, integer, text, textList } from '../../framework/fields.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../../platform/sliced-work.ts'
import { folderOf } from '../store/listing.ts'
import { eachBelow } from '../store/names.ts'
import { kvPath, mayReadMetadata, mayReadNewest } from '../store/rights.ts'
import { isDeleted, type KeyRecord } from '../store/record.ts'
import { SecretReader } from '../store/secrets.ts'

/** Secrets that a request examines, which takes some tens of milliseconds. */
const EXAMINED_MAX = 5000
const RESULTS_MAX = 1000

interface SearchInput {
  readonly path: string
  readonly name: string
  readonly custom_metadata: readonly string[] | undefined
  readonly after: string
  readonly limit: number
}

function searchResult(name: string, record: KeyRecord, hasMetadata: boolean, nowMs: number): Record<string, unknown> {
  const newest = record.versions.get(record.current)
  return {
    path: name,
    current_version: record.current,
    ...(hasMetadata && { custom_metadata: record.custom }),
    deleted: newest !== undefined && (newest.destroyed || isDeleted(newest, nowMs)),
  }
}

function* search(input: SearchInput, call: EngineCall): SlicedWork<Reply> {
  const secrets = new SecretReader(call)
  const folder = folderOf(input.path)
  const pairs = (input.custom_metadata ?? []).map(pairOf)
  const limit = Math.min(input.limit <= 0 ? RESULTS_MAX : input.limit, RESULTS_MAX)
  const matchesName = namePattern(input.name)
  const found: Record<string, unknown>[] = []
  let [examined, next] = [0, '']
  const isMore = yield* eachBelow(secrets.secret, secrets.read, folder, input.after, (name) => {
    const whole = folder + name
    // Comes first, because `next` must not be a name that the caller may not know.
    const hasMetadata = mayReadMetadata(call, whole)
    if (!hasMetadata && !mayReadNewest(call, whole)) return 1
    if (examined >= EXAMINED_MAX || found.length >= limit) return 'enough'
    examined++
    next = name
    if (!matchesName(whole)) return 1
    if (!hasMetadata && pairs.length > 0) return 1
    const record = secrets.record(whole)
    if (record && pairs.every(([key, value]) => fits(record, key, value))) {
      found.push(searchResult(whole, record, hasMetadata, secrets.nowMs))
    }
    return RECORD_COST
  })
  return { data: { found, next: isMore ? next : null } }
}

function pairOf(given: string): readonly [string, string] {
  const mark = given.indexOf('=')
  if (mark <= 0) throw new Rejection(400, '"custom_metadata" must be key=value, where * matches any characters')
  return [given.slice(0, mark), given.slice(mark + 1)]
}

function fits({ custom }: KeyRecord, key: string, value: string): boolean {
  if (!custom || !Object.hasOwn(custom, key)) return false
  return matchesGlob(custom[key] ?? '', value)
}

/** Without `*` a part of the name. With `*` a pattern for the whole name or, if it has no slash, for the last segment. */
function namePattern(given: string): (name: string) => boolean {
  const pattern = given.toLowerCase()
  if (!pattern.includes('*')) return (name) => name.toLowerCase().includes(pattern)
  const isForWhole = pattern.includes('/')
  return (name) => matchesGlob((isForWhole ? name : name.slice(name.lastIndexOf('/') + 1)).toLowerCase(), pattern)
}

/** `*` matches any characters. Each piece is searched once, from left to right, without backtracking. */
function matchesGlob(value: string, pattern: string): boolean {
  const [first = '', ...pieces] = pattern.split('*')
  const last = pieces.pop()
  if (last === undefined) return value === pattern
  const end = value.length - last.length
  if (end < first.length || !value.startsWith(first) || !value.endsWith(last)) return false
  let at = first.length
  for (const piece of pieces) {
    const found = value.indexOf(piece, at)
    if (found < 0 || found + piece.length > end) return false
    at = found + piece.length
  }
  return true
}

export const searchPaths: readonly Path[] = [
  kvPath({
    pattern: 'search/:path*',
    summary: 'Search secrets by name and custom metadata',
    fields: {
      path: inPath('Folder; empty for the whole mount'),
      name: text('Part of the name, case-insensitive; with `*` a pattern for the last segment', {
        fallback: '',
      }),
      custom_metadata: textList('Required `key=value`; may be repeated; `*` matches any characters'),
      after: text('`next` of the previous response', { fallback: '' }),
      limit: integer(`Maximum number of secrets, at most ${RESULTS_MAX}`, { fallback: 0 }),
    },
    read: (input, call) => runSliced(search(input, call), call),
  }),
]
