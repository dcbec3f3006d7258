/**
 * Takes hold of an allocation directory, new or from an earlier run, for one supervisor.
 */
import { mkdirSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { isErrno, messageOf } from '../kit/errors.ts'
import { isSupervised, makeDirectory } from './alloc-directory.ts'
import { lockAllocation } from './alloc-lock.ts'
import { CommandError } from './command-shape.ts'
import type { Manifest } from './manifest.ts'
import { processesOf, readManifest, supervisorOf } from './manifest.ts'
import { isAlive } from './process-identity.ts'

export interface OpenAllocation {
  readonly id: string
  readonly directory: string
  /** The manifest of the run before this one. */
  readonly previous: Manifest | undefined
  /** Lets another supervisor have it. */
  readonly release: () => void
}

/** Throws CommandError when it cannot be made, is in use, or is not ours. */
export async function openAllocation(root: string, id: string): Promise<OpenAllocation> {
  const directory = join(root, id)
  try {
    mkdirSync(root, { recursive: true, mode: 0o755 })
    makeDirectory(directory, 0o755)
  } catch (error) {
    const hint = isErrno(error, 'EACCES', 'EPERM', 'EROFS') ? ', run as root or give another -data-dir' : ''
    throw new CommandError(`cannot make ${directory}: ${messageOf(error)}${hint}`, 1, { cause: error })
  }
  const release = await lockAllocation(directory)
  if (!release) throw new CommandError(inUse(id, manifestOf(directory)))
  try {
    const previous = manifestOf(directory)
    if (previous) refuseRunning(id, previous)
    else if (readdirSync(directory).length > 0) {
      throw new CommandError(`${directory} has no manifest and belongs to another supervisor, give another -id`)
    }
    return { id, directory, previous, release }
  } catch (error) {
    release()
    throw error
  }
}

function refuseRunning(id: string, previous: Manifest): void {
  if (isSupervised(previous)) throw new CommandError(inUse(id, previous))
  const orphan = processesOf(previous).find(isAlive)
  if (!orphan) return
  throw new CommandError(
    `process ${orphan.pid} of allocation ${id} still runs although its supervisor is gone, end it with: outpost alloc stop ${id}`,
  )
}

function inUse(id: string, manifest: Manifest | undefined): string {
  const pid = manifest && supervisorOf(manifest)?.pid
  const who = pid === undefined ? '' : ` (supervisor ${pid})`
  return `allocation ${id} is still running${who}, end it with: outpost alloc stop ${id}`
}

function manifestOf(directory: string): Manifest | undefined {
  try {
    return readManifest(directory)
  } catch (error) {
    throw new CommandError(messageOf(error), 1, { cause: error })
  }
}
