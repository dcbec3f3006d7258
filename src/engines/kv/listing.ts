/** Names in a folder and below it, in pages, for those who may see them. */
import type { EngineCall, Reply } from '../engine.ts'
import { boolean, inPath, integer, text } from '../fields.ts'
import { namesBelow, namesIn, taken } from './names.ts'
import { type KeyRecord, shownRecord } from './record.ts'
import { Secrets } from './secrets.ts'

export const LISTING = {
  path: inPath('Folder; empty for all of the mount'),
  after: text('Names behind this one only', { fallback: '' }),
  limit: integer('Most names that are given; 0 for all', { fallback: 0 }),
  exclude_deleted: boolean('Leaves out secrets whose newest version is deleted, or will be', { fallback: false }),
}

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

/** What of `names`, which are relative to a folder, its caller is to see. */
function* seen(names: Iterable<string>, input: Listing, secrets: Secrets, call: EngineCall): Generator<string> {
  const folder = folderOf(input.path)
  const isFiltered = secrets.config.listFilter === true
  for (const name of names) {
    if (isFiltered && !isUsable(folder + name, call)) continue
    if (input.exclude_deleted && !name.endsWith('/') && hasDeletionTime(secrets.record(folder + name))) continue
    yield name
  }
}

function listed(input: Listing, call: EngineCall): string[] {
  const secrets = new Secrets(call)
  const names = namesIn(secrets.secret, secrets.read, folderOf(input.path), input.after)
  return taken(seen(names, input, secrets, call), limitOf(input, call))
}

function scanned(input: Listing, call: EngineCall): string[] {
  const secrets = new Secrets(call)
  const names = namesBelow(secrets.secret, secrets.read, folderOf(input.path), input.after)
  return taken(seen(names, input, secrets, call), limitOf(input, call))
}

export function list(input: Listing, call: EngineCall): Reply {
  return { data: { keys: listed(input, call) } }
}

/** Nothing at all has no keys, as in a list. */
export function scan(input: Listing, call: EngineCall): Reply {
  const keys = scanned(input, call)
  return { data: keys.length > 0 ? { keys } : {} }
}

export function detailedList(input: Listing, call: EngineCall): Reply {
  return detailed(listed(input, call), folderOf(input.path), call)
}

export function detailedScan(input: Listing, call: EngineCall): Reply {
  return detailed(scanned(input, call), folderOf(input.path), call)
}

function detailed(keys: readonly string[], folder: string, call: EngineCall): Reply {
  const secrets = new Secrets(call)
  const infos = keys.map((key) => {
    const record = key.endsWith('/') ? undefined : secrets.record(folder + key)
    return [key, record ? shownRecord(record) : {}] as const
  })
  return { data: { keys, key_info: Object.fromEntries(infos) } }
}
