/**
 * The names of secrets, as folders that can be listed in order, without a name showing in the store.
 *
 * An entry's path is an HMAC of what it is for, under the mount's own secret; names are in the entries' values, which the
 * barrier encrypts. A folder is one entry with its names in order or, when they are many, with a table of *pages* of
 * them: a new name then rewrites one page, and a list reads only the pages that it gives. A name that ends with a slash
 * is a folder; a secret and a folder may have one name.
 */
import { Fault } from '../../kit/errors.ts'
import type { Changes } from '../changes.ts'
import { decodedOnce } from '../decoded.ts'
import type { KeyedHash } from '../keyed-hash.ts'

/** Names of one page: about 4 KiB to rewrite for a new name. */
const PAGE_NAMES_MAX = 128

/** Reads an entry: what is durable for who lists, what is pending for who writes. */
export type Read = (path: string) => Buffer | undefined

/** `names` of a small folder; else where each page begins and what it is called. */
type Folder =
  | { readonly names: readonly string[] }
  | { readonly pages: readonly (readonly [first: string, id: number])[]; readonly next: number }

/** What an entry about `name` is called: 32 letters that tell nothing of it. */
export function hidden(secret: KeyedHash, kind: string, name: string): string {
  return secret.digest(`${kind}\0${name}`, 'base64url').slice(0, 32)
}

/** Order of the bytes of UTF-8, which is not that of JavaScript where surrogates are. */
export function compareNames(a: string, b: string): number {
  const length = Math.min(a.length, b.length)
  for (let at = 0; at < length; at++) {
    const [x, y] = [a.charCodeAt(at), b.charCodeAt(at)]
    if (x === y) continue
    const [isPairX, isPairY] = [x >= 0xd800 && x <= 0xdfff, y >= 0xd800 && y <= 0xdfff]
    return isPairX === isPairY ? x - y : isPairX ? 1 : -1
  }
  return a.length - b.length
}

/** Index of the first of `names` that is not below `name`. */
function lowerBound(names: readonly string[], name: string): number {
  let [low, high] = [0, names.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (compareNames(names[middle] ?? '', name) < 0) low = middle + 1
    else high = middle
  }
  return low
}

function folderPath(secret: KeyedHash, folder: string): string {
  return `f/${hidden(secret, 'folder', folder)}`
}

/** Written by this file and authenticated by the barrier: nobody else can have put anything else there. */
const decodeFolder = decodedOnce((bytes) => JSON.parse(bytes.toString('utf8')) as Folder)
const decodePage = decodedOnce((bytes) => JSON.parse(bytes.toString('utf8')) as readonly string[])

function folderOf(bytes: Buffer | undefined): Folder | undefined {
  return bytes && decodeFolder(bytes)
}

function pageOf(bytes: Buffer | undefined): readonly string[] {
  return bytes ? decodePage(bytes) : []
}

function encode(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value))
}

/** Index of the page that `name` belongs on. */
function pageIndex(pages: readonly (readonly [string, number])[], name: string): number {
  const at = lowerBound(
    pages.map(([first]) => first),
    name,
  )
  return pages[at]?.[0] === name ? at : Math.max(0, at - 1)
}

/** Folder of a name and its own part: `a/b/c` → `a/b/`, `c`; `a/b/` → `a/`, `b/`. */
function parted(name: string): { folder: string; leaf: string } {
  const slash = name.lastIndexOf('/', name.length - 2)
  return { folder: name.slice(0, slash + 1), leaf: name.slice(slash + 1) }
}

/** Adds a secret's name, and its folders where they are new. */
export function addName(secret: KeyedHash, changes: Changes, name: string): void {
  for (let left = name; left !== ''; ) {
    const { folder, leaf } = parted(left)
    const wasThere = addTo(folderPath(secret, folder), changes, leaf)
    left = wasThere ? '' : folder
  }
}

/** Removes a secret's name, and its folders where they are empty then. */
export function removeName(secret: KeyedHash, changes: Changes, name: string): void {
  for (let left = name; left !== ''; ) {
    const { folder, leaf } = parted(left)
    const isEmpty = removeFrom(folderPath(secret, folder), changes, leaf)
    left = isEmpty ? folder : ''
  }
}

/** True when the folder was there before: then those above it know it. */
function addTo(path: string, changes: Changes, leaf: string): boolean {
  const folder = folderOf(changes.get(path))
  if (!folder) changes.put(path, encode({ names: [leaf] }))
  else if ('names' in folder) addToNames(path, changes, inserted(folder.names, leaf))
  else addToPage(path, changes, folder, leaf)
  return folder !== undefined
}

function inserted(names: readonly string[], leaf: string): readonly string[] {
  const at = lowerBound(names, leaf)
  return names[at] === leaf ? names : [...names.slice(0, at), leaf, ...names.slice(at)]
}

function addToNames(path: string, changes: Changes, names: readonly string[]): void {
  if (names.length <= PAGE_NAMES_MAX) return changes.put(path, encode({ names }))
  const halves = halved(names)
  halves.forEach((half, id) => changes.put(`${path}/${id}`, encode(half)))
  changes.put(path, encode({ pages: halves.map((half, id) => [half[0], id]), next: halves.length }))
}

function halved(names: readonly string[]): (readonly string[])[] {
  const middle = names.length >>> 1
  return [names.slice(0, middle), names.slice(middle)]
}

type Paged = Extract<Folder, { readonly pages: unknown }>

function addToPage(path: string, changes: Changes, folder: Paged, leaf: string): void {
  const at = pageIndex(folder.pages, leaf)
  const page = folder.pages[at]
  if (!page) throw new Fault('a folder of names has no page')
  const [first, id] = page
  const names = inserted(pageOf(changes.get(`${path}/${id}`)), leaf)
  const pages = [...folder.pages]
  if (names.length <= PAGE_NAMES_MAX) {
    changes.put(`${path}/${id}`, encode(names))
    if (names[0] === first) return
    pages[at] = [names[0] ?? first, id]
    return changes.put(path, encode({ pages, next: folder.next }))
  }
  const [low = [], high = []] = halved(names)
  changes.put(`${path}/${id}`, encode(low))
  changes.put(`${path}/${folder.next}`, encode(high))
  pages.splice(at, 1, [low[0] ?? first, id], [high[0] ?? first, folder.next])
  changes.put(path, encode({ pages, next: folder.next + 1 }))
}

/** True when nothing is left in the folder. */
function removeFrom(path: string, changes: Changes, leaf: string): boolean {
  const folder = folderOf(changes.get(path))
  if (!folder) return false
  if ('names' in folder) {
    const names = folder.names.filter((each) => each !== leaf)
    if (names.length > 0) changes.put(path, encode({ names }))
    else changes.delete(path)
    return names.length === 0
  }
  const at = pageIndex(folder.pages, leaf)
  const id = folder.pages[at]?.[1] ?? 0
  const names = pageOf(changes.get(`${path}/${id}`)).filter((each) => each !== leaf)
  if (names.length > 0) {
    changes.put(`${path}/${id}`, encode(names))
    return false
  }
  changes.delete(`${path}/${id}`)
  const pages = folder.pages.filter((_, index) => index !== at)
  if (pages.length > 0) changes.put(path, encode({ pages, next: folder.next }))
  else changes.delete(path)
  return pages.length === 0
}

export interface ListOptions {
  /** Names behind this one only; it need not be there. */
  readonly after?: string
  readonly limit?: number
}

/** Names directly in a folder (empty for the root, else with a slash at its end), in order. */
export function* namesIn(secret: KeyedHash, read: Read, folder: string, after = ''): Generator<string> {
  const path = folderPath(secret, folder)
  const found = folderOf(read(path))
  if (!found) return
  if ('names' in found) {
    yield* behind(found.names, after)
    return
  }
  const from = after === '' ? 0 : pageIndex(found.pages, after)
  for (const [, id] of found.pages.slice(from)) {
    yield* behind(pageOf(read(`${path}/${id}`)), after)
  }
}

function* behind(names: readonly string[], after: string): Generator<string> {
  const from = after === '' ? 0 : lowerBound(names, after)
  for (let at = from; at < names.length; at++) {
    const name = names[at] ?? ''
    if (name !== after) yield name
  }
}

/**
 * Secrets anywhere below a folder, by their names from there on: what is in the folder first, then what is in its own.
 * Those behind `after` only, in this order. Folders that are still to be read wait in a list: somebody may have made some
 * thousands of them inside one another, which is more than the stack has room for.
 */
export function* namesBelow(secret: KeyedHash, read: Read, top: string, after = ''): Generator<string> {
  const waiting = [{ prefix: '', after }]
  for (let folder = waiting.pop(); folder; folder = waiting.pop()) {
    const { prefix } = folder
    const slash = folder.after.indexOf('/')
    const first = folder.after.slice(0, slash + 1)
    const folders: { prefix: string; after: string }[] = []
    for (const name of namesIn(secret, read, top + prefix)) {
      if (name.endsWith('/')) {
        if (first !== '' && compareNames(name, first) < 0) continue
        folders.push({ prefix: prefix + name, after: name === first ? folder.after.slice(slash + 1) : '' })
      } else if (first === '' && (folder.after === '' || compareNames(name, folder.after) > 0)) yield prefix + name
    }
    // One after the other: spread as arguments, a hundred thousand would be too many.
    for (const each of folders.toReversed()) waiting.push(each)
  }
}

/** At most `limit` of them; no limit where it is 0 or less. */
export function taken(names: Iterable<string>, limit: number): string[] {
  if (limit <= 0) return [...names]
  const found: string[] = []
  for (const name of names) {
    found.push(name)
    if (found.length >= limit) break
  }
  return found
}
