/**
 * Removes one directory with everything in it, and nothing else, even while somebody works against it.
 *
 * The tree belonged to tasks, and a task may have left a process behind that swaps a directory for a symbolic link at
 * the worst moment. So no path is ever walked twice: each directory is opened once, without following links, from the
 * descriptor of the one above it, and what is in it is removed through that descriptor (`/proc/self/fd/N/name` is
 * Linux's `unlinkat`). A directory on another filesystem is not entered. Mounts of the same filesystem (bind mounts) look
 * like ordinary directories, so `mountsBelow` is to be asked first; the kernel refuses to remove a mount point anyway.
 *
 * However deep the tree is: below `DEPTH_MAX` a directory is moved up to the top and removed from there, so that neither
 * descriptors nor path lengths run out.
 */
import { constants } from 'node:fs'
import { type FileHandle, open, opendir, readFile, rename, rmdir, unlink } from 'node:fs/promises'
import { dirname, basename } from 'node:path'
import { Fault, isErrno } from '../../platform/errors.ts'

const DEPTH_MAX = 64
/** Removals in flight at a time within one directory. */
const BATCH = 32
/** Somebody may still be writing into the tree; after this many rounds they are taken to mean it. */
const ROUNDS_MAX = 20

interface Tree {
  readonly top: FileHandle
  readonly device: number
  readonly signal: AbortSignal
  moved: number
}

/**
 * Removes `directory`. Rejects with the system's error (`EBUSY` for something mounted in it, `EACCES`, `ENOTEMPTY` when
 * it is being filled as fast as it is emptied), leaving the rest in place; so does an abort. Resolves when there is no
 * such directory.
 */
export async function removeTree(directory: string, signal: AbortSignal): Promise<void> {
  const above = await openDirectory(dirname(directory))
  try {
    const top = await openDirectory(at(above, basename(directory))).catch((error: unknown) => {
      if (isErrno(error, 'ENOENT')) return undefined
      throw error
    })
    if (!top) return
    try {
      const tree = { top, device: (await top.stat()).dev, signal, moved: 0 }
      if (tree.device !== (await above.stat()).dev) throw busy(basename(directory))
      await removeEmptied(tree, at(above, basename(directory)), () => empty(tree, top, 0))
    } finally {
      await top.close()
    }
  } finally {
    await above.close()
  }
}

function openDirectory(path: string): Promise<FileHandle> {
  return open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW)
}

function at(directory: FileHandle, name: string): string {
  return `/proc/self/fd/${directory.fd}/${name}`
}

/** Empties and removes, again when something new appeared in between. */
async function removeEmptied(tree: Tree, path: string, emptyIt: () => Promise<void>): Promise<void> {
  for (let rounds = 0; rounds < ROUNDS_MAX; ) {
    const movedBefore = tree.moved
    await emptyIt()
    try {
      return await rmdir(path)
    } catch (error) {
      if (isErrno(error, 'ENOENT')) return
      if (!isErrno(error, 'ENOTEMPTY', 'EEXIST')) throw error
    }
    // A round that brought something up from the deep is progress and no sign of a busy writer.
    if (tree.moved === movedBefore) rounds++
  }
  throw Object.assign(new Fault(`ENOTEMPTY: somebody keeps writing into the directory`), { code: 'ENOTEMPTY' })
}

async function empty(tree: Tree, directory: FileHandle, depth: number): Promise<void> {
  const files: string[] = []
  const directories: string[] = []
  for await (const entry of await opendir(`/proc/self/fd/${directory.fd}`)) {
    tree.signal.throwIfAborted()
    if (entry.isDirectory()) directories.push(entry.name)
    else files.push(entry.name)
    if (files.length >= BATCH) await unlinkAll(directory, files.splice(0))
  }
  await unlinkAll(directory, files)
  for (const name of directories) {
    tree.signal.throwIfAborted()
    if (depth >= DEPTH_MAX) await rename(at(directory, name), at(tree.top, `.deep-${process.pid}-${++tree.moved}`))
    else await removeBelow(tree, directory, name, depth + 1)
  }
}

async function unlinkAll(directory: FileHandle, names: readonly string[]): Promise<void> {
  const results = await Promise.allSettled(names.map((name) => unlink(at(directory, name))))
  for (const result of results) {
    // EISDIR: it became a directory meanwhile, and the next round will see it as one.
    if (result.status === 'rejected' && !isErrno(result.reason, 'ENOENT', 'EISDIR')) throw result.reason
  }
}

async function removeBelow(tree: Tree, parent: FileHandle, name: string, depth: number): Promise<void> {
  let directory: FileHandle
  try {
    directory = await openDirectory(at(parent, name))
  } catch (error) {
    // It is gone, or a link or a file by now: the next round sees it as what it is.
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'ELOOP')) return
    throw error
  }
  try {
    if ((await directory.stat()).dev !== tree.device) throw busy(name)
    await removeEmptied(tree, at(parent, name), () => empty(tree, directory, depth))
  } finally {
    await directory.close()
  }
}

function busy(name: string): Error {
  return Object.assign(new Fault(`EBUSY: a filesystem is mounted on ${JSON.stringify(name)}`), { code: 'EBUSY' })
}

/**
 * Paths, relative to `directory`, on which something is mounted (`.` for itself); `directory` has no symlinks in it.
 * Empty where the host does not tell (no `/proc`).
 */
export async function mountsBelow(directory: string): Promise<readonly string[]> {
  let text: string
  try {
    text = await readFile('/proc/self/mountinfo', 'utf8')
  } catch {
    return []
  }
  const points = text.split('\n').map((line) => unescapeOctal(line.split(' ')[4] ?? ''))
  const inside = points.filter((point) => point === directory || point.startsWith(`${directory}/`))
  return inside.map((point) => point.slice(directory.length + 1) || '.')
}

/** `mountinfo` writes space, tab, newline and backslash as `\040` and so on. */
function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))
}
