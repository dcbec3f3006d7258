/** Names in a folder and below it, in pages, for those who may see them. */
import type { EngineCall, HandlerResult, Reply } from '../../framework/engine.ts'
import { boolean, inPath, integer, text } from '../../framework/fields.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../../platform/scheduler.ts'
import { eachBelow, eachIn } from './names.ts'
import { type KeyRecord, shownRecord } from './record.ts'
import { isMetadataForbidden } from './rights.ts'
import { Secrets } from './secrets.ts'

export const LISTING = {
  path: inPath('Folder; empty for all of the mount'),
  after: text('Names behind this one only', { fallback: '' }),
  limit: integer('Most names that are given; 0 for all', { fallback: 0 }),
  exclude_deleted: boolean('Leaves out secrets whose newest version is deleted, or will be', { fallback: false }),
}

/** Of asking policies several times about one name. */
const FILTER_COST = 2

export interface Listing {
  readonly path: string
  readonly after: string
  readonly limit: number
  readonly exclude_deleted: boolean
}

export function folderOf(given: string): string {
  return given === '' || given.endsWith('/') ? given : `${given}/`
}

/** The smaller of what is asked for and what the caller's policy lets a list have. */
function limitOf({ limit }: Listing, { limitMax }: EngineCall): number {
  if (limitMax === undefined) return limit
  return limit <= 0 ? limitMax : Math.min(limit, limitMax)
}

/** Whether the caller may do anything with a secret, or with one below a folder. */
function isUsable(name: string, { allows, reaches }: EngineCall): boolean {
  if (allows('read', `data/${name}`) || allows('read', `metadata/${name}`)) return true
  if (name.endsWith('/')) return reaches(`data/${name}`)
  return allows('update', `data/${name}`) || allows('create', `data/${name}`) || allows('patch', `data/${name}`)
}

function hasDeletionTime(record: KeyRecord | undefined): boolean {
  return (record?.versions.get(record.current)?.deletedAtMs ?? 0) !== 0
}

/**
 * Whether a rule forbids the list of a folder between the one that is scanned and a name. The last folder is remembered:
 * names come in order.
 */
function foldersOf(call: EngineCall): (scanned: string, name: string) => boolean {
  const front = call.mount.options['version'] === '2' ? 'metadata/' : ''
  let [last, isLastForbidden] = ['', false]
  return (scanned, name) => {
    const inner = name.slice(0, name.lastIndexOf('/', name.length - 2) + 1)
    if (inner === '') return false
    if (inner === last) return isLastForbidden
    const ends = [...inner.matchAll(/\//g)].map(({ index }) => index + 1)
    isLastForbidden = ends.some((end) => call.forbids(call.verb, front + scanned + inner.slice(0, end)))
    last = inner
    return isLastForbidden
  }
}

/** Is given a name that its caller sees; returns what it has cost. */
type Take = (name: string) => number

/** What of the names in a folder, or below it, its caller is to see: `take` is given each. */
function* seen(each: typeof eachIn, input: Listing, call: EngineCall, take: Take): SlicedWork<void> {
  const secrets = new Secrets(call)
  const folder = folderOf(input.path)
  const limit = limitOf(input, call)
  const isFiltered = secrets.config.listFilter === true
  const isFolderForbidden = foldersOf(call)
  let count = 0
  yield* each(secrets.secret, secrets.read, folder, input.after, (name) => {
    if (isFolderForbidden(folder, name)) return FILTER_COST
    if (isFiltered && !isUsable(folder + name, call)) return FILTER_COST
    const isAsked = input.exclude_deleted && !name.endsWith('/') && !isMetadataForbidden(call, folder + name)
    if (isAsked && hasDeletionTime(secrets.record(folder + name))) return RECORD_COST
    const cost = take(name) + (isFiltered ? FILTER_COST : 0) + (isAsked ? RECORD_COST : 0)
    count++
    return limit > 0 && count >= limit ? 'enough' : cost
  })
}

function* listed(each: typeof eachIn, input: Listing, call: EngineCall): SlicedWork<string[]> {
  const keys: string[] = []
  yield* seen(each, input, call, (name) => {
    keys.push(name)
    return 1
  })
  return keys
}

export function list(input: Listing, call: EngineCall): HandlerResult {
  return runSliced(listReply(input, call), call)
}

function* listReply(input: Listing, call: EngineCall): SlicedWork<Reply> {
  return { data: { keys: yield* listed(eachIn, input, call) } }
}

export function scan(input: Listing, call: EngineCall): HandlerResult {
  return runSliced(scanReply(input, call), call)
}

/** Nothing at all has no keys, as in a list. */
function* scanReply(input: Listing, call: EngineCall): SlicedWork<Reply> {
  const keys = yield* listed(eachBelow, input, call)
  return { data: keys.length > 0 ? { keys } : {} }
}

export function detailedList(input: Listing, call: EngineCall): HandlerResult {
  return runSliced(detailed(eachIn, input, call), call)
}

export function detailedScan(input: Listing, call: EngineCall): HandlerResult {
  return runSliced(detailed(eachBelow, input, call), call)
}

/** A name and what is kept of it are of one state. A secret whose metadata a rule forbids has its name alone. */
function* detailed(each: typeof eachIn, input: Listing, call: EngineCall): SlicedWork<Reply> {
  const secrets = new Secrets(call)
  const folder = folderOf(input.path)
  const infos: (readonly [string, Record<string, unknown>])[] = []
  yield* seen(each, input, call, (key) => {
    const isShown = !key.endsWith('/') && !isMetadataForbidden(call, folder + key)
    const record = isShown ? secrets.record(folder + key) : undefined
    infos.push([key, record ? shownRecord(record) : {}])
    return FILTER_COST + RECORD_COST + (record ? record.versions.size : 0)
  })
  return { data: { keys: infos.map(([key]) => key), key_info: Object.fromEntries(infos) } }
}
