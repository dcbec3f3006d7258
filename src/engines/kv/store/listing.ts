/** Lists and recursive lists of names, in pages, limited to the names that the caller may see. */
import type { EngineCall, HandlerResult, Reply } from '../../framework/engine.ts'
import { boolean, inPath, integer, text } from '../../framework/fields.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../../platform/sliced-work.ts'
import { eachBelow, eachIn } from './names.ts'
import { type KeyRecord, metadataResponse } from './record.ts'
import { isMetadataForbidden } from './rights.ts'
import { SecretReader } from './secrets.ts'

export const LIST_FIELDS = {
  path: inPath('Folder; empty for the whole mount'),
  after: text('Only names after this one', { fallback: '' }),
  limit: integer('Maximum number of names; 0 for all', { fallback: 0 }),
  exclude_deleted: boolean('Omit secrets whose latest version is deleted or will be deleted', { fallback: false }),
}

/** Cost of several policy checks for a name. */
const FILTER_COST = 2

export interface FolderListInput {
  readonly path: string
  readonly after: string
  readonly limit: number
  readonly exclude_deleted: boolean
}

export function folderOf(given: string): string {
  return given === '' || given.endsWith('/') ? given : `${given}/`
}

/** The requested limit, capped by the caller's policy. */
function limitOf({ limit }: FolderListInput, { limitMax }: EngineCall): number {
  if (limitMax === undefined) return limit
  return limit <= 0 ? limitMax : Math.min(limit, limitMax)
}

/** Whether the caller has any right on a secret, or on one below a folder. */
function isUsable(name: string, { allows, reaches }: EngineCall): boolean {
  if (allows('read', `data/${name}`) || allows('read', `metadata/${name}`)) return true
  if (name.endsWith('/')) return reaches(`data/${name}`)
  return allows('update', `data/${name}`) || allows('create', `data/${name}`) || allows('patch', `data/${name}`)
}

function hasDeletionTime(record: KeyRecord | undefined): boolean {
  return (record?.versions.get(record.current)?.deletedAtMs ?? 0) !== 0
}

/**
 * Returns a function that tells whether a rule forbids the list of a folder between the scanned one and a name. It caches the
 * last folder, as names come in order.
 */
function forbiddenFolders(call: EngineCall): (scanned: string, name: string) => boolean {
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

/** Returns the cost of handling a visible name. */
type VisibleNameVisitor = (name: string) => number

/** Visits the names in a folder, or below it, that the caller may see. */
function* eachVisible(
  each: typeof eachIn,
  input: FolderListInput,
  call: EngineCall,
  visit: VisibleNameVisitor,
): SlicedWork<void> {
  const secrets = new SecretReader(call)
  const folder = folderOf(input.path)
  const limit = limitOf(input, call)
  const isFiltered = secrets.config.listFilter === true
  const isFolderForbidden = forbiddenFolders(call)
  let count = 0
  yield* each(secrets.secret, secrets.read, folder, input.after, (name) => {
    if (isFolderForbidden(folder, name)) return FILTER_COST
    if (isFiltered && !isUsable(folder + name, call)) return FILTER_COST
    const isAsked = input.exclude_deleted && !name.endsWith('/') && !isMetadataForbidden(call, folder + name)
    if (isAsked && hasDeletionTime(secrets.record(folder + name))) return RECORD_COST
    const cost = visit(name) + (isFiltered ? FILTER_COST : 0) + (isAsked ? RECORD_COST : 0)
    count++
    return limit > 0 && count >= limit ? 'enough' : cost
  })
}

function* visibleKeys(each: typeof eachIn, input: FolderListInput, call: EngineCall): SlicedWork<string[]> {
  const keys: string[] = []
  yield* eachVisible(each, input, call, (name) => {
    keys.push(name)
    return 1
  })
  return keys
}

export function list(input: FolderListInput, call: EngineCall): HandlerResult {
  return runSliced(listReply(input, call), call)
}

function* listReply(input: FolderListInput, call: EngineCall): SlicedWork<Reply> {
  return { data: { keys: yield* visibleKeys(eachIn, input, call) } }
}

export function scan(input: FolderListInput, call: EngineCall): HandlerResult {
  return runSliced(scanReply(input, call), call)
}

/** An empty result has no member `keys`, as with an empty list. */
function* scanReply(input: FolderListInput, call: EngineCall): SlicedWork<Reply> {
  const keys = yield* visibleKeys(eachBelow, input, call)
  return { data: keys.length > 0 ? { keys } : {} }
}

export function detailedList(input: FolderListInput, call: EngineCall): HandlerResult {
  return runSliced(detailed(eachIn, input, call), call)
}

export function detailedScan(input: FolderListInput, call: EngineCall): HandlerResult {
  return runSliced(detailed(eachBelow, input, call), call)
}

/** A name and its metadata are of the same state. If a rule forbids the metadata, only the name is returned. */
function* detailed(each: typeof eachIn, input: FolderListInput, call: EngineCall): SlicedWork<Reply> {
  const secrets = new SecretReader(call)
  const folder = folderOf(input.path)
  const infos: (readonly [string, Record<string, unknown>])[] = []
  yield* eachVisible(each, input, call, (key) => {
    const isShown = !key.endsWith('/') && !isMetadataForbidden(call, folder + key)
    const record = isShown ? secrets.record(folder + key) : undefined
    infos.push([key, record ? metadataResponse(record) : {}])
    return FILTER_COST + RECORD_COST + (record ? record.versions.size : 0)
  })
  return { data: { keys: infos.map(([key]) => key), key_info: Object.fromEntries(infos) } }
}
