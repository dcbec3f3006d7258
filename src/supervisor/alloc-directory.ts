/** The allocations of this host: `<data_dir>/alloc/<uuid>/`. */
import { readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { isErrno, messageOf } from '../platform/errors.ts'
import type { AllocHandle } from './alloc-directory-handle.ts'
import { SupervisorError } from './supervisor-error.ts'
import { isUuid } from '../platform/schema.ts'
import type { Manifest } from './manifest-file.ts'
import { processesOf, readManifest, supervisorOf } from './manifest-file.ts'
import { isAlive } from './process-identity.ts'

export const DEFAULT_DATA_DIR = '/var/lib/outpost'

/** Absolute path of the data directory of the host. */
export function dataDirectory(dataDir: string | undefined, env: NodeJS.ProcessEnv): string {
  return resolve(dataDir ?? (env['OUTPOST_DATA_DIR'] || DEFAULT_DATA_DIR))
}

/** Absolute path of the directory of all allocations. */
export function allocRoot(dataDir: string | undefined, env: NodeJS.ProcessEnv): string {
  return join(dataDirectory(dataDir, env), 'alloc')
}

export interface LocalAllocation {
  readonly id: string
  readonly directory: string
  /** Undefined without a readable manifest: another supervisor owns the directory. */
  readonly manifest: Manifest | undefined
  /** Status of the manifest; `lost` if the manifest says running but no process runs; `unknown` without a manifest. */
  readonly status: string
}

/** All allocations, newest first. Throws SupervisorError if the directory cannot be listed. */
export function listAllocations(root: string): LocalAllocation[] {
  const allocations = idsIn(root).map((id) => readAllocation(root, id))
  return allocations.sort(
    (a, b) => (b.manifest?.CreateTime ?? 0) - (a.manifest?.CreateTime ?? 0) || (a.id < b.id ? -1 : 1),
  )
}

/** The allocations with this ID prefix, in any case. */
export function matchAllocations(root: string, prefix: string): LocalAllocation[] {
  const lowerCasePrefix = prefix.toLowerCase()
  return idsIn(root)
    .filter((id) => id.toLowerCase().startsWith(lowerCasePrefix))
    .map((id) => readAllocation(root, id))
}

/** True while the supervisor runs; without a recorded supervisor, while a process of the allocation runs. */
export function isSupervised(manifest: Manifest): boolean {
  const supervisor = supervisorOf(manifest)
  return supervisor ? isAlive(supervisor) : processesOf(manifest).some(isAlive)
}

function readAllocation(root: string, id: string): LocalAllocation {
  const directory = join(root, id)
  return readAllocationAt({ id, directory, at: directory })
}

/** `at`: the path by descriptor. */
export function readAllocationAt({ id, directory, at }: Pick<AllocHandle, 'id' | 'directory' | 'at'>): LocalAllocation {
  const manifest = readManifestOrUndefined(at)
  return { id, directory, manifest, status: manifest ? statusOf(manifest) : 'unknown' }
}

function statusOf(manifest: Manifest): string {
  const unfinished = manifest.ClientStatus === 'running' || manifest.ClientStatus === 'pending'
  return unfinished && !isSupervised(manifest) ? 'lost' : manifest.ClientStatus
}

function readManifestOrUndefined(directory: string): Manifest | undefined {
  try {
    return readManifest(directory)
  } catch {
    return undefined // a malformed manifest must not prevent the list of the others
  }
}

function idsIn(root: string): string[] {
  try {
    return readdirSync(root, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && isUuid(entry.name))
      .map((entry) => entry.name)
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return []
    throw new SupervisorError(`cannot list ${root}: ${messageOf(error)}`, { cause: error })
  }
}
