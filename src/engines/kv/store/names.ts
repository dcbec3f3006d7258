/**
 * The names of secrets, as folders that can be listed in order, without a name showing in the store.
 *
 * An entry's path is an HMAC of what it is for, under the mount's own secret; names are in the entries' values, which the
 * barrier encrypts (`folder.ts`). A name that ends with a slash is a folder; a secret and a folder may have one name.
 */
import type { BatchBuilder } from '../../framework/records.ts'
import type { KeyedHash } from '../../../platform/keyed-hash.ts'
import { RECORD_COST, type SlicedWork } from '../../../platform/scheduler.ts'
import { addTo, compareNames, hasName, namesFrom, type Read, removeFrom } from './folder.ts'

/** What an entry about `name` is called: 32 letters that tell nothing of it. */
export function hidden(secret: KeyedHash, kind: string, name: string): string {
  return secret.name(`${kind}\0${name}`).slice(0, 32)
}

function folderPath(secret: KeyedHash, folder: string): string {
  return `f/${hidden(secret, 'folder', folder)}`
}

/** Folder of a name and its own part: `a/b/c` → `a/b/`, `c`; `a/b/` → `a/`, `b/`. */
function parted(name: string): { folder: string; leaf: string } {
  const slash = name.lastIndexOf('/', name.length - 2)
  return { folder: name.slice(0, slash + 1), leaf: name.slice(slash + 1) }
}

/** Adds a secret's name, and its folders where they are new. */
export function addName(secret: KeyedHash, changes: BatchBuilder, name: string): void {
  for (let left = name; left !== ''; ) {
    const { folder, leaf } = parted(left)
    const wasThere = addTo(folderPath(secret, folder), changes, leaf)
    left = wasThere ? '' : folder
  }
}

/** Removes a secret's name, and its folders where they are empty then. */
export function removeName(secret: KeyedHash, changes: BatchBuilder, name: string): void {
  for (let left = name; left !== ''; ) {
    const { folder, leaf } = parted(left)
    const isEmpty = removeFrom(folderPath(secret, folder), changes, leaf)
    left = isEmpty ? folder : ''
  }
}

/** Whether there is a secret of this name. */
export function isNamed(secret: KeyedHash, read: Read, name: string): boolean {
  const { folder, leaf } = parted(name)
  return hasName(read, folderPath(secret, folder), leaf)
}

/** Names directly in a folder (empty for the root, else with a slash at its end), in order; those behind `after`. */
export function namesIn(secret: KeyedHash, read: Read, folder: string, after = ''): Generator<string> {
  return namesFrom(read, folderPath(secret, folder), after)
}

/** Is told a name, and tells what it has cost (`turns.ts`), or that no more are wanted. */
export type Visit = (name: string) => number | 'enough'

/**
 * Visits the names directly in a folder, in order, those behind `after`; true when no more are wanted. Whenever others have
 * come in, the folder is read again from the last name on: a name that is there all the time is visited, once, whatever
 * has become of the pages meanwhile.
 */
export function* eachIn(
  secret: KeyedHash,
  read: Read,
  folder: string,
  after: string,
  visit: Visit,
): SlicedWork<boolean> {
  let last = after
  for (let isToRead = true; isToRead; ) {
    isToRead = false
    for (const name of namesIn(secret, read, folder, last)) {
      const cost = visit(name)
      if (cost === 'enough') return true
      last = name
      isToRead = yield cost
      if (isToRead) break
    }
  }
  return false
}

/**
 * Visits secrets anywhere below a folder, by their names from there on: what is in the folder first, then what is in its
 * own. Those behind `after` only, in this order. Folders that are still to be read wait in a list: somebody may have made
 * some thousands of them inside one another, which is more than the stack has room for.
 */
export function* eachBelow(
  secret: KeyedHash,
  read: Read,
  top: string,
  after: string,
  visit: Visit,
): SlicedWork<boolean> {
  const waiting = [{ prefix: '', after }]
  for (let folder = waiting.pop(); folder; folder = waiting.pop()) {
    const { after: start, prefix } = folder
    const slash = start.indexOf('/')
    const first = start.slice(0, slash + 1)
    const folders: { prefix: string; after: string }[] = []
    const isEnough = yield* eachIn(secret, read, top + prefix, '', (name) => {
      if (!name.endsWith('/')) {
        const isBehind = first === '' && (start === '' || compareNames(name, start) > 0)
        return isBehind ? visit(prefix + name) : 1
      }
      if (first === '' || compareNames(name, first) >= 0) {
        folders.push({ prefix: prefix + name, after: name === first ? start.slice(slash + 1) : '' })
      }
      return 1
    })
    if (isEnough) return true
    // One after the other: spread as arguments, a hundred thousand would be too many.
    for (const each of folders.toReversed()) waiting.push(each)
    // It may be empty by now.
    yield RECORD_COST
  }
  return false
}
