/**
 * Takes hold of an allocation directory, new or from an earlier run, for one supervisor.
 */
import { readdirSync } from 'node:fs'
import { messageOf } from '../platform/errors.ts'
import { isSupervised } from './alloc-directory.ts'
import { lockAllocation } from './alloc-lock.ts'
import { type AllocPlace, isForeign, makePlace } from './alloc-directory-handle.ts'
import { CommandError } from '../cli/framework/command-shape.ts'
import type { Manifest } from './manifest.ts'
import { processesOf, readManifest, supervisorOf } from './manifest.ts'
import { isAlive } from './process-identity.ts'

export interface OpenAllocation {
  readonly id: string
  readonly place: AllocPlace
  /** The manifest of the run before this one. */
  readonly previous: Manifest | undefined
  /** Lets another supervisor have it. */
  readonly release: () => void
}

/** Throws CommandError when it cannot be made, is in use, or belongs to another user or supervisor. */
export async function openAllocation(root: string, id: string): Promise<OpenAllocation> {
  const place = makePlace(root, id)
  let unlock: (() => void) | undefined
  const release = () => {
    unlock?.()
    place.close()
  }
  try {
    refuseForeign(place)
    unlock = await lockAllocation(place.at)
    if (!unlock) throw new CommandError(inUse(id, manifestOf(place)))
    const previous = manifestOf(place)
    if (previous) refuseRunning(id, previous)
    else if (readdirSync(place.at).length > 0) {
      throw new CommandError(`${place.directory} has no manifest and belongs to another supervisor, give another -id`)
    }
    return { id, place, previous, release }
  } catch (error) {
    release()
    throw error
  }
}

/** Root runs nothing in a directory whose owner could change the manifest and the logs meanwhile. */
function refuseForeign(place: AllocPlace): void {
  if (!isForeign(place)) return
  const user = `'#${place.ownerId}'`
  throw new CommandError(
    `${place.directory} belongs to user ${place.ownerId}: run the command as that user (sudo -u ${user} outpost alloc run …), or give another -id`,
  )
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

function manifestOf(place: AllocPlace): Manifest | undefined {
  try {
    return readManifest(place.at)
  } catch (error) {
    throw new CommandError(`${place.directory}: ${messageOf(error)}`, 1, { cause: error })
  }
}
