/**
 * One small file that is either its old self or its new self, whatever happens in between.
 *
 * Temporary name in the same directory, write, fsync, rename, fsync of the directory. Until the rename the old file is
 * untouched, so a full disk or a kill costs the new content and nothing else; what is left is a temporary file, removed
 * by `removeLeftovers` at the next start. The one doubtful moment is a directory fsync that fails after the rename: the
 * new content is in place but may not survive a power cut. `RenamedButNotSynced` tells that case apart.
 */
import { link, open, readdir, rename, unlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { Fault, messageOf } from '../kit/errors.ts'

/** The steps that can fail, so that a test can make each of them fail. */
export interface DiskSteps {
  /** Creates `path` (0600, must not exist), writes all of `text` and syncs it. */
  readonly create: (path: string, text: string) => Promise<void>
  readonly rename: (from: string, to: string) => Promise<void>
  /** Fails with EEXIST where there is a file of that name. */
  readonly link: (from: string, to: string) => Promise<void>
  readonly syncDirectory: (path: string) => Promise<void>
  readonly remove: (path: string) => Promise<void>
}

export const diskSteps: DiskSteps = {
  async create(path, text) {
    const file = await open(path, 'wx', 0o600)
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
  },
  rename,
  link,
  async syncDirectory(path) {
    const directory = await open(path, 'r')
    try {
      await directory.sync()
    } finally {
      await directory.close()
    }
  },
  remove: unlink,
}

/** The new content is in place, but a power cut might still bring the old one back. */
export class RenamedButNotSynced extends Fault {}

const TEMPORARY = '.tmp-'
let serial = 0

/**
 * Replaces the file at `path` by `text` (UTF-8, mode 0600). Resolves once it would survive a power cut. Rejects with the
 * system's error and leaves the old file, or with `RenamedButNotSynced`. Calls for one path must not overlap.
 */
export function writeDurably(path: string, text: string, steps: DiskSteps = diskSteps): Promise<void> {
  return put(path, text, steps, steps.rename)
}

/** Makes the file as `writeDurably` does. Rejects with EEXIST where there is one: it stays as it is. */
export function makeDurably(path: string, text: string, steps: DiskSteps = diskSteps): Promise<void> {
  return put(path, text, steps, async (temporary) => {
    await steps.link(temporary, path)
    await steps.remove(temporary)
  })
}

async function put(path: string, text: string, steps: DiskSteps, name: DiskSteps['rename']): Promise<void> {
  const temporary = `${path}${TEMPORARY}${process.pid}-${++serial}`
  try {
    await steps.create(temporary, text)
    await name(temporary, path)
  } catch (error) {
    await steps.remove(temporary).catch(() => {})
    throw error
  }
  try {
    await steps.syncDirectory(dirname(path))
  } catch (error) {
    throw new RenamedButNotSynced(`cannot sync ${dirname(path)}: ${messageOf(error)}`)
  }
}

/** Removes the temporary files that killed writers of `path` left. Returns how many there were. */
export async function removeLeftovers(path: string): Promise<number> {
  const prefix = basename(path) + TEMPORARY
  const names = (await readdir(dirname(path))).filter((name) => name.startsWith(prefix))
  await Promise.all(names.map((name) => unlink(join(dirname(path), name)).catch(() => {})))
  return names.length
}
