/**
 * The names of secrets, in folders that are listed in order. No path in the store contains a name.
 *
 * The path of an entry is an HMAC of its purpose, under a secret of the mount. Names are in the values of entries, which the
 * barrier encrypts (`folder.ts`). A name that ends with a slash is a folder. A secret and a folder may have the same name.
 */
import type { KeyedHash } from '../../../platform/keyed-hash.ts'
import { RECORD_COST, type SlicedWork } from '../../../platform/sliced-work.ts'
import { Rejection } from '../../framework/engine.ts'
import { UNPRINTABLE } from '../../framework/fields.ts'
import type { BatchBuilder, ReadEntry } from '../../framework/records.ts'
import { addTo, compareNames, hasName, namesFrom, removeFrom } from './folder.ts'

/** 32 characters that identify `name` without revealing it. */
export function hashedName(secret: KeyedHash, kind: string, name: string): string {
  return secret.name(`${kind}\0${name}`).slice(0, 32)
}

function folderPath(secret: KeyedHash, folder: string): string {
  return `f/${hashedName(secret, 'folder', folder)}`
}

/** The folder and the last part of a name: `a/b/c` → `a/b/`, `c`; `a/b/` → `a/`, `b/`. */
function splitName(name: string): { folder: string; leaf: string } {
  const slash = name.lastIndexOf('/', name.length - 2)
  return { folder: name.slice(0, slash + 1), leaf: name.slice(slash + 1) }
}

/** Adds the name of a secret, and its folders if they are new. */
export function addName(secret: KeyedHash, changes: BatchBuilder, name: string): void {
  for (let rest = name; rest !== ''; ) {
    const { folder, leaf } = splitName(rest)
    const wasThere = addTo(folderPath(secret, folder), changes, leaf)
    rest = wasThere ? '' : folder
  }
}

/** Removes the name of a secret, and its folders if they are then empty. */
export function removeName(secret: KeyedHash, changes: BatchBuilder, name: string): void {
  for (let rest = name; rest !== ''; ) {
    const { folder, leaf } = splitName(rest)
    const isEmpty = removeFrom(folderPath(secret, folder), changes, leaf)
    rest = isEmpty ? folder : ''
  }
}

/** Whether a secret of this name exists. */
export function isNamed(secret: KeyedHash, read: ReadEntry, name: string): boolean {
  const { folder, leaf } = splitName(name)
  return hasName(read, folderPath(secret, folder), leaf)
}

/** Names directly in a folder (empty for the root, else with a trailing slash) after `after`, in order. */
export function namesIn(secret: KeyedHash, read: ReadEntry, folder: string, after = ''): Generator<string> {
  return namesFrom(read, folderPath(secret, folder), after)
}

/** Returns the cost of handling the name (`platform/sliced-work.ts`), or 'enough' to stop. */
export type NameVisitor = (name: string) => number | 'enough'

/**
 * Visits the names directly in a folder after `after`, in order. Returns true if the visitor stopped. If other work ran, the
 * folder is read again from the last name on, so a name that exists all the time is visited exactly once, also if pages were
 * split or merged.
 */
export function* eachIn(
  secret: KeyedHash,
  read: ReadEntry,
  folder: string,
  after: string,
  visit: NameVisitor,
): SlicedWork<boolean> {
  let last = after
  for (let mustRead = true; mustRead; ) {
    mustRead = false
    for (const name of namesIn(secret, read, folder, last)) {
      const cost = visit(name)
      if (cost === 'enough') return true
      last = name
      mustRead = yield cost
      if (mustRead) break
    }
  }
  return false
}

/**
 * Visits all secrets below a folder after `after`, by names relative to it: first those in the folder, then those in its
 * subfolders. The folders to read are in a list and not on the stack, which thousands of nested folders would overflow.
 */
export function* eachBelow(
  secret: KeyedHash,
  read: ReadEntry,
  top: string,
  after: string,
  visit: NameVisitor,
): SlicedWork<boolean> {
  const pending = [{ prefix: '', after }]
  for (let folder = pending.pop(); folder; folder = pending.pop()) {
    const { after: start, prefix } = folder
    const slash = start.indexOf('/')
    const first = start.slice(0, slash + 1)
    const folders: { prefix: string; after: string }[] = []
    const isEnough = yield* eachIn(secret, read, top + prefix, '', (name) => {
      if (!name.endsWith('/')) {
        const isAfter = first === '' && (start === '' || compareNames(name, start) > 0)
        return isAfter ? visit(prefix + name) : 1
      }
      if (first === '' || compareNames(name, first) >= 0) {
        folders.push({ prefix: prefix + name, after: name === first ? start.slice(slash + 1) : '' })
      }
      return 1
    })
    if (isEnough) return true
    // No spread: a hundred thousand arguments exceed the stack.
    for (const each of folders.toReversed()) pending.push(each)
    yield RECORD_COST
  }
  return false
}

const NAME_BYTES_MAX = 4096

/** The name of a secret in a body, with the rules of request paths. Throws a Rejection (400) that names the field. */
export function secretName(given: unknown, field: string): string {
  if (typeof given !== 'string') throw new Rejection(400, `"${field}" must be the name of a secret`)
  const name = given.replaceAll(/\/{2,}/g, '/').replace(/^\//, '')
  if (name === '' || name.endsWith('/')) throw new Rejection(400, `"${field}" must name a secret, not a folder`)
  if (!name.isWellFormed() || UNPRINTABLE.test(name))
    throw new Rejection(400, `"${field}" has characters that are not printable`)
  if (/(?:^|\/)\.\.?(?:\/|$)/.test(name)) throw new Rejection(400, 'relative paths not supported')
  if (Buffer.byteLength(name) > NAME_BYTES_MAX)
    throw new Rejection(400, `"${field}" has more than ${NAME_BYTES_MAX} bytes`)
  return name
}
