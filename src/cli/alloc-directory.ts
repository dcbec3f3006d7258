/**
 * Where allocations live on this host: `<data_dir>/alloc/<uuid>/`.
 */
import { chmodSync, mkdirSync, readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { isErrno, messageOf } from '../kit/errors.ts'
import { CommandError } from './command-shape.ts'
import { isUuid } from '../kit/schema.ts'
import type { Manifest } from './manifest.ts'
import { processesOf, readManifest, supervisorOf } from './manifest.ts'
import { text } from './options.ts'
import { isAlive } from './process-identity.ts'

const DEFAULT_DATA_DIR = '/var/lib/outpost'

export const dataDirOption = text({
  placeholder: 'DIR',
  help: "The host's data directory",
  fallback: undefined,
  shownDefault: `OUTPOST_DATA_DIR, else ${DEFAULT_DATA_DIR}`,
})

/** Absolute path of the directory that holds the allocations. */
export function allocRoot(dataDir: string | undefined, env: NodeJS.ProcessEnv): string {
  return join(resolve(dataDir ?? (env['OUTPOST_DATA_DIR'] || DEFAULT_DATA_DIR)), 'alloc')
}

/** Absolute paths of one task's directories. */
export interface AllocPaths {
  readonly root: string
  readonly shared: string
  readonly logs: string
  readonly local: string
  readonly secrets: string
  readonly private: string
}

/** Makes what is missing of the directories of one task inside `directory`. Modes do not depend on the caller's umask. Throws. */
export function layOut(directory: string, task: string): AllocPaths {
  const shared = join(directory, 'alloc')
  const own = join(directory, task)
  const open = [shared, ...['data', 'logs', 'tmp'].map((name) => join(shared, name))]
  open.push(own, join(own, 'local'))
  for (const path of open) makeDirectory(path, 0o755)
  for (const name of ['secrets', 'private', 'tmp']) makeDirectory(join(own, name), 0o700)
  return {
    root: directory,
    shared,
    logs: join(shared, 'logs'),
    local: join(own, 'local'),
    secrets: join(own, 'secrets'),
    private: join(own, 'private'),
  }
}

/** Makes one directory with exactly this mode; one that is there is left as it is. Throws the system's error. */
export function makeDirectory(path: string, mode: number): void {
  try {
    mkdirSync(path)
  } catch (error) {
    if (isErrno(error, 'EEXIST')) return // an operator may have given it another mode: that is theirs to choose
    throw error
  }
  chmodSync(path, mode)
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
  const manifest = manifestOrNothing(directory)
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
