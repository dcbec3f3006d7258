/**
 * Removes one directory recursively, and nothing outside it, even while another process changes it.
 *
 * The tree belonged to tasks, and a task may have left a process that replaces a directory by a symbolic link during the
 * removal. So no path is resolved twice: each directory is opened once, without following links, from the descriptor of its
 * parent, and its entries are removed through that descriptor (`/proc/self/fd/N/name` is Linux's `unlinkat`). A directory on
 * another file system is not entered. Bind mounts of the same file system look like ordinary directories, so the caller
 * checks `mountsBelow` first; the kernel refuses to remove a mount point in any case.
 *
 * The depth is unlimited: a directory below `DEPTH_MAX` is moved to the top and removed there, so that neither descriptors
 * nor path lengths are exhausted.
 */
import { constants } from 'node:fs'
import { type FileHandle, open, opendir, rename, rmdir, unlink } from 'node:fs/promises'
import { dirname, basename } from 'node:path'
import { Fault, isErrno } from '../../platform/errors.ts'

const DEPTH_MAX = 64
/** Parallel removals within one directory. */
const BATCH = 32
/** Another process may still write to the tree; after this many rounds the removal fails. */
const ROUNDS_MAX = 20

interface RemovalTree {
  readonly top: FileHandle
  readonly device: number
  readonly signal: AbortSignal
  moved: number
}

/**
 * Removes `directory`. Rejects with the system's error (`EBUSY` for a mount point, `EACCES`, `ENOTEMPTY` if another process
 * keeps writing to it), leaving the rest in place; so does an abort. Resolves if the directory does not exist.
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

/** Empties and removes, and repeats this if a new entry appeared in between. */
async function removeEmptied(tree: RemovalTree, path: string, emptyIt: () => Promise<void>): Promise<void> {
  for (let rounds = 0; rounds < ROUNDS_MAX; ) {
    const movedBefore = tree.moved
    await emptyIt()
    try {
      return await rmdir(path)
    } catch (error) {
      if (isErrno(error, 'ENOENT')) return
      if (!isErrno(error, 'ENOTEMPTY', 'EEXIST')) throw error
    }
    // A round that moved a deep directory to the top is progress, not a sign of another writer.
    if (tree.moved === movedBefore) rounds++
  }
  throw Object.assign(new Fault('ENOTEMPTY: another process keeps writing to the directory'), { code: 'ENOTEMPTY' })
}

async function empty(tree: RemovalTree, directory: FileHandle, depth: number): Promise<void> {
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
    // EISDIR: it became a directory meanwhile, and the next round handles it as one.
    if (result.status === 'rejected' && !isErrno(result.reason, 'ENOENT', 'EISDIR')) throw result.reason
  }
}

async function removeBelow(tree: RemovalTree, parent: FileHandle, name: string, depth: number): Promise<void> {
  let directory: FileHandle
  try {
    directory = await openDirectory(at(parent, name))
  } catch (error) {
    // It was removed or replaced by a link or a file: the next round handles that.
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
  return Object.assign(new Fault(`EBUSY: a file system is mounted on ${JSON.stringify(name)}`), { code: 'EBUSY' })
}
