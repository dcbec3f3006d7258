/**
 * `search/`: secrets by a part of their name and by their custom metadata, among those of which the caller may read the
 * newest version or the metadata. Custom metadata is shown, and looked for, only where the caller may read the metadata.
 */
import { type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { inPath, integer, text, textList } from '../../framework/fields.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../../platform/scheduler.ts'
import { folderOf } from '../store/listing.ts'
import { eachBelow } from '../store/names.ts'
import { kvPath } from '../store/reads.ts'
import { isDeleted, type KeyRecord } from '../store/record.ts'
import { mayReadMetadata, mayReadNewest } from '../store/rights.ts'
import { Secrets } from '../store/secrets.ts'

/** Secrets that one request looks at: some tens of milliseconds. */
const LOOKED_AT_MAX = 5000
const FOUND_MAX = 1000

interface Input {
  readonly path: string
  readonly name: string
  readonly custom_metadata: readonly string[] | undefined
  readonly after: string
  readonly limit: number
}

function shown(name: string, record: KeyRecord, hasMetadata: boolean, nowMs: number): Record<string, unknown> {
  const newest = record.versions.get(record.current)
  return {
    path: name,
    current_version: record.current,
    ...(hasMetadata && { custom_metadata: record.custom }),
    deleted: newest !== undefined && (newest.destroyed || isDeleted(newest, nowMs)),
  }
}

function* search(input: Input, call: EngineCall): SlicedWork<Reply> {
  const secrets = new Secrets(call)
  const folder = folderOf(input.path)
  const wanted = (input.custom_metadata ?? []).map(pairOf)
  const limit = Math.min(input.limit <= 0 ? FOUND_MAX : input.limit, FOUND_MAX)
  const isWantedName = namePattern(input.name)
  const found: Record<string, unknown>[] = []
  let [lookedAt, next] = [0, '']
  const isMore = yield* eachBelow(secrets.secret, secrets.read, folder, input.after, (name) => {
    const whole = folder + name
    // Before anything else: `next` is a name too, and must not be one that the caller may not know.
    const hasMetadata = mayReadMetadata(call, whole)
    if (!hasMetadata && !mayReadNewest(call, whole)) return 1
    if (lookedAt >= LOOKED_AT_MAX || found.length >= limit) return 'enough'
    lookedAt++
    next = name
    if (!isWantedName(whole)) return 1
    if (!hasMetadata && wanted.length > 0) return 1
    const record = secrets.record(whole)
    if (record && wanted.every(([key, value]) => fits(record, key, value))) {
      found.push(shown(whole, record, hasMetadata, secrets.nowMs))
    }
    return RECORD_COST
  })
  return { data: { found, next: isMore ? next : null } }
}

function pairOf(given: string): readonly [string, string] {
  const mark = given.indexOf('=')
  if (mark <= 0) throw new Rejection(400, '"custom_metadata" is key=value, with * for any characters')
  return [given.slice(0, mark), given.slice(mark + 1)]
}

function fits({ custom }: KeyRecord, key: string, value: string): boolean {
  if (!custom || !Object.hasOwn(custom, key)) return false
  return matchesGlob(custom[key] ?? '', value)
}

/** A part of the name; with `*` the pattern is for the whole name, or without a slash for its last segment. */
function namePattern(given: string): (name: string) => boolean {
  const wanted = given.toLowerCase()
  if (!wanted.includes('*')) return (name) => name.toLowerCase().includes(wanted)
  const isForWhole = wanted.includes('/')
  return (name) => matchesGlob((isForWhole ? name : name.slice(name.lastIndexOf('/') + 1)).toLowerCase(), wanted)
}

/** `*` stands for any characters. Each piece is searched once, from left to right, without backtracking. */
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
    summary: 'Secrets by a part of their name and by their custom metadata',
    fields: {
      path: inPath('Folder; empty for all of the mount'),
      name: text('A part of the name in any case; with `*` for any characters, all of its last segment', {
        fallback: '',
      }),
      custom_metadata: textList('`key=value` that it must have; several for several; `*` for any characters'),
      after: text('`next` of the answer before', { fallback: '' }),
      limit: integer(`Most secrets that are given, at most ${FOUND_MAX}`, { fallback: 0 }),
    },
    read: (input, call) => runSliced(search(input, call), call),
  }),
]
