/**
 * The names in one folder as entries, in order.
 *
 * A small folder is one entry with its names. A large one has *pages* of them, and a table of where each page begins: a list
 * reads only the pages that it gives. A name that is new goes into a short list beside them, the *young* names, so that it
 * costs a few hundred bytes and not a page; when that list is full, its names go to their places in one batch.
 *
 * A folder that is there has at least one name that is not young.
 */
import { Fault } from '../../../platform/errors.ts'
import { type BatchBuilder, CachedCodec } from '../../framework/records.ts'

/** Reads an entry: what is durable for who lists, what is pending for who writes. */
export type Read = (path: string) => Buffer | undefined

/** Names of one page: about 4 KiB. */
const PAGE_NAMES_MAX = 128
/** Names of a page that was made of a larger one: it has room for more. */
const PAGE_NAMES_SPLIT = 96
/** Names that are added before they go to their pages. */
const YOUNG_MAX = 32

type Names = readonly string[]
type Pages = readonly (readonly [first: string, id: number])[]
/** `names` of a small folder; else where each page begins and what it is called. */
type Base = { readonly names: Names } | { readonly pages: Pages; readonly next: number }
type Paged = Extract<Base, { readonly pages: unknown }>

const encode = (value: unknown) => Buffer.from(JSON.stringify(value))
/** Written by this file and authenticated by the barrier: nobody else can have put anything else there. */
const bases = new CachedCodec<Base>((bytes) => JSON.parse(bytes.toString('utf8')) as Base, encode)
const lists = new CachedCodec<Names>((bytes) => JSON.parse(bytes.toString('utf8')) as Names, encode)

const youngPath = (path: string) => `${path}+`
const pagePath = (path: string, id: number) => `${path}/${id}`

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

/** Index of the first of `length` names that is not below `name`. */
function lowerBound(length: number, nameAt: (index: number) => string | undefined, name: string): number {
  let [low, high] = [0, length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (compareNames(nameAt(middle) ?? '', name) < 0) low = middle + 1
    else high = middle
  }
  return low
}

function placeOf(names: Names, name: string): number {
  return lowerBound(names.length, (at) => names[at], name)
}

function includes(names: Names, name: string): boolean {
  return names[placeOf(names, name)] === name
}

/** Index of the page that `name` belongs on. */
function pageIndex(pages: Pages, name: string): number {
  const at = lowerBound(pages.length, (index) => pages[index]?.[0], name)
  return pages[at]?.[0] === name ? at : Math.max(0, at - 1)
}

function baseIn(read: Read, path: string): Base | undefined {
  const bytes = read(path)
  return bytes && bases.of(bytes)
}

function namesAt(read: Read, path: string): Names {
  const bytes = read(path)
  return bytes ? lists.of(bytes) : []
}

/** Whether a name is in the folder at `path`. */
export function hasName(read: Read, path: string, name: string): boolean {
  const base = baseIn(read, path)
  if (!base) return false
  if ('names' in base ? includes(base.names, name) : isOnPage(read, path, base, name)) return true
  return includes(namesAt(read, youngPath(path)), name)
}

function isOnPage(read: Read, path: string, { pages }: Paged, name: string): boolean {
  const page = pages[pageIndex(pages, name)]
  return page !== undefined && includes(namesAt(read, pagePath(path, page[1])), name)
}

/** Names behind `after`, in order. */
export function* namesFrom(read: Read, path: string, after: string): Generator<string> {
  const base = baseIn(read, path)
  if (!base) return
  const young = namesAt(read, youngPath(path))
  let at = firstBehind(young, after)
  for (const name of baseNames(read, path, base, after)) {
    for (let other = young[at]; other !== undefined && compareNames(other, name) < 0; other = young[++at]) yield other
    yield name
  }
  for (; at < young.length; at++) yield young[at] ?? ''
}

function* baseNames(read: Read, path: string, base: Base, after: string): Generator<string> {
  if ('names' in base) {
    yield* behind(base.names, after)
    return
  }
  const from = after === '' ? 0 : pageIndex(base.pages, after)
  for (let at = from; at < base.pages.length; at++) {
    yield* behind(namesAt(read, pagePath(path, base.pages[at]?.[1] ?? 0)), after)
  }
}

function* behind(names: Names, after: string): Generator<string> {
  for (let at = firstBehind(names, after); at < names.length; at++) yield names[at] ?? ''
}

function firstBehind(names: Names, after: string): number {
  if (after === '') return 0
  const at = placeOf(names, after)
  return names[at] === after ? at + 1 : at
}

/** Adds a name that is not there. True when the folder was there before. */
export function addTo(path: string, changes: BatchBuilder, name: string): boolean {
  const read: Read = (entry) => changes.get(entry)
  const base = baseIn(read, path)
  if (!base) {
    changes.put(path, bases.bytes({ names: [name] }))
    return false
  }
  if ('names' in base && base.names.length < YOUNG_MAX) {
    changes.put(path, bases.bytes({ names: merged(base.names, [name]) }))
    return true
  }
  const young = merged(namesAt(read, youngPath(path)), [name])
  if (young.length < YOUNG_MAX) {
    changes.put(youngPath(path), lists.bytes(young))
    return true
  }
  changes.delete(youngPath(path))
  if ('names' in base) setNames(path, changes, merged(base.names, young))
  else addToPages(path, changes, base, young)
  return true
}

/** Both in order, and none in both. */
function merged(names: Names, more: Names): Names {
  const all: string[] = []
  let from = 0
  for (const name of more) {
    const to = placeOf(names, name)
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

/** In parts of about the same length. */
function split(names: Names): Names[] {
  const count = Math.ceil(names.length / PAGE_NAMES_SPLIT)
  const length = Math.ceil(names.length / count)
  return Array.from({ length: count }, (_, at) => names.slice(at * length, (at + 1) * length))
}

function addToPages(path: string, changes: BatchBuilder, base: Paged, names: Names): void {
  const pages: (readonly [string, number])[] = []
  let { next } = base
  let from = 0
  base.pages.forEach(([first, id], at) => {
    const end = base.pages[at + 1]?.[0]
    const to = end === undefined ? names.length : Math.max(from, placeOf(names, end))
    const more = names.slice(from, to)
    from = to
    if (more.length === 0) {
      pages.push([first, id])
      return
    }
    const all = merged(
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

/** Removes a name. True when nothing is left in the folder. */
export function removeFrom(path: string, changes: BatchBuilder, name: string): boolean {
  const read: Read = (entry) => changes.get(entry)
  const base = baseIn(read, path)
  if (!base) return false
  const young = namesAt(read, youngPath(path))
  if (includes(young, name)) {
    if (young.length === 1) changes.delete(youngPath(path))
    else changes.put(youngPath(path), lists.bytes(young.filter((each) => each !== name)))
    return false
  }
  const isLeft = 'names' in base ? takeOut(path, changes, base.names, name) : takeOffPage(path, changes, base, name)
  if (isLeft) return false
  if (young.length === 0) {
    changes.delete(path)
    return true
  }
  changes.delete(youngPath(path))
  changes.put(path, bases.bytes({ names: young }))
  return false
}

/** False when no name is left, and then nothing was changed. */
function takeOut(path: string, changes: BatchBuilder, before: Names, name: string): boolean {
  const names = before.filter((each) => each !== name)
  if (names.length > 0) changes.put(path, bases.bytes({ names }))
  return names.length > 0
}

/** False when no page is left, and then only that page was changed. */
function takeOffPage(path: string, changes: BatchBuilder, base: Paged, name: string): boolean {
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
