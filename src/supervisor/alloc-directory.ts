/**
 * Where allocations live on this host: `<data_dir>/alloc/<uuid>/`.
 */
import { readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { isErrno, messageOf } from '../platform/errors.ts'
import type { AllocPlace } from './alloc-directory-handle.ts'
import { CommandError } from '../cli/framework/command-shape.ts'
import { isUuid } from '../platform/schema.ts'
import type { Manifest } from './manifest.ts'
import { processesOf, readManifest, supervisorOf } from './manifest.ts'
import { text } from '../cli/framework/options.ts'
import { isAlive } from './process-identity.ts'

const DEFAULT_DATA_DIR = '/var/lib/outpost'

export const dataDirOption = text({
  placeholder: 'DIR',
  help: "The host's data directory",
  fallback: undefined,
  shownDefault: `OUTPOST_DATA_DIR, else ${DEFAULT_DATA_DIR}`,
})

/** Absolute path of the host's data directory. */
export function dataDirectory(dataDir: string | undefined, env: NodeJS.ProcessEnv): string {
  return resolve(dataDir ?? (env['OUTPOST_DATA_DIR'] || DEFAULT_DATA_DIR))
}

/** Absolute path of the directory that holds the allocations. */
export function allocRoot(dataDir: string | undefined, env: NodeJS.ProcessEnv): string {
  return join(dataDirectory(dataDir, env), 'alloc')
}

/** One allocation as the commands of this host see it. */
export interface LocalAllocation {
  readonly id: string
  readonly directory: string
  /** Undefined when the directory has none (or none that can be read): somebody else supervises it. */
  readonly manifest: Manifest | undefined
  /** What its manifest says, or `lost` when that says running but nobody is left; `unknown` without a manifest. */
  readonly status: string
}

/** All allocations, newest first. Throws CommandError when the directory cannot be listed. */
export function listAllocations(root: string): LocalAllocation[] {
  const found = idsIn(root).map((id) => look(root, id))
  return found.sort((a, b) => (b.manifest?.CreateTime ?? 0) - (a.manifest?.CreateTime ?? 0) || (a.id < b.id ? -1 : 1))
}

/** The allocations whose ID begins with `prefix`, in any case. */
export function matchAllocations(root: string, prefix: string): LocalAllocation[] {
  const wanted = prefix.toLowerCase()
  return idsIn(root)
    .filter((id) => id.toLowerCase().startsWith(wanted))
    .map((id) => look(root, id))
}

/** True while its supervisor runs, or, where no supervisor is on record, one of its processes. */
export function isSupervised(manifest: Manifest): boolean {
  const supervisor = supervisorOf(manifest)
  return supervisor ? isAlive(supervisor) : processesOf(manifest).some(isAlive)
}

export function look(root: string, id: string): LocalAllocation {
  const directory = join(root, id)
  return lookAt({ id, directory, at: directory })
}

/** The same of a directory that is reached by another path than its name. */
export function lookAt({ id, directory, at }: Pick<AllocPlace, 'id' | 'directory' | 'at'>): LocalAllocation {
  const manifest = manifestOrNothing(at)
  return { id, directory, manifest, status: manifest ? statusOf(manifest) : 'unknown' }
}

function statusOf(manifest: Manifest): string {
  const unfinished = manifest.ClientStatus === 'running' || manifest.ClientStatus === 'pending'
  return unfinished && !isSupervised(manifest) ? 'lost' : manifest.ClientStatus
}

function manifestOrNothing(directory: string): Manifest | undefined {
  try {
    return readManifest(directory)
  } catch {
    return undefined // listing the others must not fail because of this one
  }
}

function idsIn(root: string): string[] {
  try {
    return readdirSync(root, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && isUuid(entry.name))
      .map((entry) => entry.name)
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return []
    throw new CommandError(`cannot list ${root}: ${messageOf(error)}`, 1, { cause: error })
  }
}
