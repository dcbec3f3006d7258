/**
 * Scheduled snapshots in a directory. A snapshot is written to a temporary name, synced, read back and verified, and renamed then. A file
 * with the name of a snapshot is therefore complete, whenever the process was killed.
 */
import { once } from 'node:events'
import { createReadStream, createWriteStream } from 'node:fs'
import { lstat, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { isErrno } from '../../../platform/errors.ts'
import { diskSteps } from '../../../platform/program-file.ts'
import { inspectSnapshot } from '../inspect.ts'
import {
  type SavedSnapshot,
  snapshotsAmong,
  type SnapshotSource,
  type SnapshotTarget,
  type StoredSnapshot,
} from './snapshot-target.ts'

const TEMPORARY = '.partial'
/** A temporary file without a write for this time is of a killed process. */
const ABANDONED_MS = 3_600_000
const MODE = { directory: 0o700, file: 0o600 } as const

export class DirectoryTarget implements SnapshotTarget {
  readonly location: string
  readonly #clusterId: string

  constructor(directory: string, clusterId: string) {
    this.location = directory
    this.#clusterId = clusterId
  }

  async list(): Promise<StoredSnapshot[]> {
    try {
      // A directory or a link with such a name is not a snapshot, and a directory could not be removed.
      const entries = await readdir(this.location, { withFileTypes: true })
      const files = entries.filter((entry) => entry.isFile())
      return snapshotsAmong(
        files.map(({ name }) => name),
        this.#clusterId,
      )
    } catch (error) {
      if (isErrno(error, 'ENOENT')) return []
      throw error
    }
  }

  async save(name: string, source: SnapshotSource, signal: AbortSignal): Promise<SavedSnapshot> {
    await mkdir(this.location, { recursive: true, mode: MODE.directory })
    await this.#removeAbandoned()
    const path = join(this.location, name)
    const temporary = `${path}${TEMPORARY}`
    const out = createWriteStream(temporary, { flags: 'wx', mode: MODE.file })
    await once(out, 'open')
    // The source rejects with errors of the stream; it may not listen yet.
    out.on('error', () => undefined)
    try {
      await source(out, signal)
      await syncFile(temporary)
      const { meta } = await inspectSnapshot(createReadStream(temporary), { signal })
      const { size } = await stat(temporary)
      await rename(temporary, path)
      await diskSteps.syncDirectory(this.location)
      return { meta, bytes: size }
    } catch (error) {
      out.destroy()
      await rm(temporary, { force: true })
      throw error
    }
  }

  async remove(name: string): Promise<void> {
    await rm(join(this.location, name), { force: true })
  }

  async #removeAbandoned(): Promise<void> {
    const names = (await readdir(this.location)).filter((name) => name.endsWith(TEMPORARY))
    const complete = new Map(names.map((name) => [name.slice(0, -TEMPORARY.length), join(this.location, name)]))
    for (const { name } of snapshotsAmong(complete.keys(), this.#clusterId)) {
      const path = complete.get(name) ?? ''
      const { mtimeMs } = await lstat(path)
      if (Date.now() - mtimeMs > ABANDONED_MS) await rm(path, { force: true })
    }
  }
}

async function syncFile(path: string): Promise<void> {
  const file = await open(path, 'r+')
  try {
    await file.sync()
  } finally {
    await file.close()
  }
}
