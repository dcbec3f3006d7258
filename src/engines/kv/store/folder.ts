/**
 * The names in a folder, as sorted entries.
 *
 * A small folder is one entry with its names. A large folder has *pages* of names, and an entry with the first name of each
 * page, so a list reads only the pages that it returns. A new name goes to a short list of *recent* names, so that it costs a few
 * hundred bytes and not a page. When the list is full, its names are merged into the pages in one batch.
 *
 * Invariant: an existing folder has at least one name that is not recent.
 */
import { Fault } from '../../../platform/errors.ts'
import { type BatchBuilder, CachedCodec, type ReadEntry } from '../../framework/records.ts'

/** About 4 KiB. */
const PAGE_NAMES_MAX = 128
/** Names of a page after a split, which leaves space for more. */
const PAGE_NAMES_SPLIT = 96
/** Recent names before a merge. */
const RECENT_NAMES_MAX = 32

type Names = readonly string[]
type Pages = readonly (readonly [first: string, id: number])[]
/** A small folder has `names`, a large one the first name and the ID of each page. */
type FolderEntry = { readonly names: Names } | { readonly pages: Pages; readonly next: number }
type PagedFolder = Extract<FolderEntry, { readonly pages: unknown }>

const encode = (value: unknown) => Buffer.from(JSON.stringify(value))
/** Written only by this file and authenticated by the barrier, so the entries need no validation. */
const bases = new CachedCodec<FolderEntry>((bytes) => JSON.parse(bytes.toString('utf8')) as FolderEntry, encode)
const lists = new CachedCodec<Names>((bytes) => JSON.parse(bytes.toString('utf8')) as Names, encode)

const recentPath = (path: string) => `${path}+`
const pagePath = (path: string, id: number) => `${path}/${id}`

/** Byte order of UTF-8, which differs from the order of JavaScript for surrogates. */
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

/** Index of the first of `length` sorted names that is not less than `name`. */
function lowerBound(length: number, nameAt: (index: number) => string | undefined, name: string): number {
  let [low, high] = [0, length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (compareNames(nameAt(middle) ?? '', name) < 0) low = middle + 1
    else high = middle
  }
  return low
}

function indexOf(names: Names, name: string): number {
  return lowerBound(names.length, (at) => names[at], name)
}

function includes(names: Names, name: string): boolean {
  return names[indexOf(names, name)] === name
}

/** Index of the page for `name`. */
function pageIndex(pages: Pages, name: string): number {
  const at = lowerBound(pages.length, (index) => pages[index]?.[0], name)
  return pages[at]?.[0] === name ? at : Math.max(0, at - 1)
}

function baseIn(read: ReadEntry, path: string): FolderEntry | undefined {
  const bytes = read(path)
  return bytes && bases.of(bytes)
}

function namesAt(read: ReadEntry, path: string): Names {
  const bytes = read(path)
  return bytes ? lists.of(bytes) : []
}

/** Whether a name is in the folder at `path`. */
export function hasName(read: ReadEntry, path: string, name: string): boolean {
  const base = baseIn(read, path)
  if (!base) return false
  if ('names' in base ? includes(base.names, name) : isOnPage(read, path, base, name)) return true
  return includes(namesAt(read, recentPath(path)), name)
}

function isOnPage(read: ReadEntry, path: string, { pages }: PagedFolder, name: string): boolean {
  const page = pages[pageIndex(pages, name)]
  return page !== undefined && includes(namesAt(read, pagePath(path, page[1])), name)
}

/** Names after `after`, in order. */
export function* namesFrom(read: ReadEntry, path: string, after: string): Generator<string> {
  const base = baseIn(read, path)
  if (!base) return
  const recent = namesAt(read, recentPath(path))
  let at = firstAfter(recent, after)
  for (const name of baseNames(read, path, base, after)) {
    for (let other = recent[at]; other !== undefined && compareNames(other, name) < 0; other = recent[++at]) yield other
    yield name
  }
  for (; at < recent.length; at++) yield recent[at] ?? ''
}

function* baseNames(read: ReadEntry, path: string, base: FolderEntry, after: string): Generator<string> {
  if ('names' in base) {
    yield* namesAfter(base.names, after)
    return
  }
  const from = after === '' ? 0 : pageIndex(base.pages, after)
  for (let at = from; at < base.pages.length; at++) {
    yield* namesAfter(namesAt(read, pagePath(path, base.pages[at]?.[1] ?? 0)), after)
  }
}

function* namesAfter(names: Names, after: string): Generator<string> {
  for (let at = firstAfter(names, after); at < names.length; at++) yield names[at] ?? ''
}

function firstAfter(names: Names, after: string): number {
  if (after === '') return 0
  const at = indexOf(names, after)
  return names[at] === after ? at + 1 : at
}

/** Adds a new name. Returns true if the folder existed. */
export function addTo(path: string, changes: BatchBuilder, name: string): boolean {
  const read: ReadEntry = (entry) => changes.get(entry)
  const base = baseIn(read, path)
  if (!base) {
    changes.put(path, bases.bytes({ names: [name] }))
    return false
  }
  if ('names' in base && base.names.length < RECENT_NAMES_MAX) {
    changes.put(path, bases.bytes({ names: mergeNames(base.names, [name]) }))
    return true
  }
  const recent = mergeNames(namesAt(read, recentPath(path)), [name])
  if (recent.length < RECENT_NAMES_MAX) {
    changes.put(recentPath(path), lists.bytes(recent))
    return true
  }
  changes.delete(recentPath(path))
  if ('names' in base) setNames(path, changes, mergeNames(base.names, recent))
  else addToPages(path, changes, base, recent)
  return true
}

/** Merges two sorted lists without common names. */
function mergeNames(names: Names, more: Names): Names {
  const all: string[] = []
  let from = 0
  for (const name of more) {
    const to = indexOf(names, name)
    for (; from < to; from++) all.push(names[from] ?? '')
    all.push(name)
  }
  for (; from < names.length; from++) all.push(names[from] ?? '')
  return all
}

function setNames(path: string, changes: BatchBuilder, names: Names): void {
  if (names.length <= PAGE_NAMES_MAX) return changes.put(path, bases.bytes({ names }))
  const parts = split(names)
  parts.forEach((part, id) => changes.put(pagePath(path, id), lists.bytes(part)))
  changes.put(path, bases.bytes({ pages: parts.map((part, id) => [part[0] ?? '', id]), next: parts.length }))
}

/** Splits into parts of about the same length. */
function split(names: Names): Names[] {
  const count = Math.ceil(names.length / PAGE_NAMES_SPLIT)
  const length = Math.ceil(names.length / count)
  return Array.from({ length: count }, (_, at) => names.slice(at * length, (at + 1) * length))
}

function addToPages(path: string, changes: BatchBuilder, base: PagedFolder, names: Names): void {
  const pages: (readonly [string, number])[] = []
  let { next } = base
  let from = 0
  base.pages.forEach(([first, id], at) => {
    const end = base.pages[at + 1]?.[0]
    const to = end === undefined ? names.length : Math.max(from, indexOf(names, end))
    const more = names.slice(from, to)
    from = to
    if (more.length === 0) {
      pages.push([first, id])
      return
    }
    const all = mergeNames(
      namesAt((entry) => changes.get(entry), pagePath(path, id)),
      more,
    )
    const parts = all.length <= PAGE_NAMES_MAX ? [all] : split(all)
    for (const [index, part] of parts.entries()) {
      const own = index === 0 ? id : next++
      changes.put(pagePath(path, own), lists.bytes(part))
      pages.push([part[0] ?? first, own])
    }
  })
  const isSame = pages.length === base.pages.length && pages.every(([first], at) => first === base.pages[at]?.[0])
  if (!isSame) changes.put(path, bases.bytes({ pages, next }))
}

/** Removes a name. Returns true if the folder is then empty. */
export function removeFrom(path: string, changes: BatchBuilder, name: string): boolean {
  const read: ReadEntry = (entry) => changes.get(entry)
  const base = baseIn(read, path)
  if (!base) return false
  const recent = namesAt(read, recentPath(path))
  if (includes(recent, name)) {
    if (recent.length === 1) changes.delete(recentPath(path))
    else changes.put(recentPath(path), lists.bytes(recent.filter((each) => each !== name)))
    return false
  }
  const isLeft =
    'names' in base ? removeFromNames(path, changes, base.names, name) : removeFromPage(path, changes, base, name)
  if (isLeft) return false
  if (recent.length === 0) {
    changes.delete(path)
    return true
  }
  changes.delete(recentPath(path))
  changes.put(path, bases.bytes({ names: recent }))
  return false
}

/** Returns false, without a change, if no name would be left. */
function removeFromNames(path: string, changes: BatchBuilder, before: Names, name: string): boolean {
  const names = before.filter((each) => each !== name)
  if (names.length > 0) changes.put(path, bases.bytes({ names }))
  return names.length > 0
}

/** Returns false if no page is left; then only the page was deleted. */
function removeFromPage(path: string, changes: BatchBuilder, base: PagedFolder, name: string): boolean {
  const at = pageIndex(base.pages, name)
  const page = base.pages[at]
  if (!page) throw new Fault('a folder of names has no page')
  const entry = pagePath(path, page[1])
  const names = namesAt((one) => changes.get(one), entry).filter((each) => each !== name)
  if (names.length > 0) {
    changes.put(entry, lists.bytes(names))
    return true
  }
  changes.delete(entry)
  const pages = base.pages.filter((_, index) => index !== at)
  if (pages.length > 0) changes.put(path, bases.bytes({ pages, next: base.next }))
  return pages.length > 0
}
