/**
 * Opens and locks an allocation directory for one supervisor.
 *
 * The lock is the name of an abstract Unix socket, which the kernel releases when the process ends, so there are no stale locks. The name
 * contains device and inode of the directory, so that data directories do not conflict. It does not reach across network namespaces;
 * there, the supervisor in the manifest is the lock.
 */
import { readdirSync, statSync } from 'node:fs'
import { createServer } from 'node:net'
import { SupervisorError } from './supervisor-error.ts'
import { isErrno, messageOf } from '../platform/errors.ts'
import { type AllocHandle, createAllocDirectory, isForeign } from './alloc-directory-handle.ts'
import { isSupervised } from './alloc-directory.ts'
import { type Manifest, processesOf, readManifest, supervisorOf } from './manifest-file.ts'
import { isAlive } from './process-identity.ts'

export interface AllocationLock {
  readonly id: string
  readonly handle: AllocHandle
  /** Manifest of the previous run. */
  readonly previous: Manifest | undefined
  /** Unlocks and closes the directory. */
  readonly release: () => void
}

/** Throws SupervisorError if the directory cannot be created, is in use, or belongs to another user or supervisor. */
export async function openAllocation(root: string, id: string): Promise<AllocationLock> {
  const handle = createAllocDirectory(root, id)
  let unlock: (() => void) | undefined
  const release = () => {
    unlock?.()
    handle.close()
  }
  try {
    refuseForeign(handle)
    unlock = await lockAllocation(handle.at)
    if (!unlock) throw new SupervisorError(inUse(id, manifestOf(handle)))
    const previous = manifestOf(handle)
    if (previous) refuseRunning(id, previous)
    else if (readdirSync(handle.at).length > 0) {
      throw new SupervisorError(
        `${handle.directory} has no manifest and belongs to another supervisor: use another -id`,
      )
    }
    return { id, handle, previous, release }
  } catch (error) {
    release()
    throw error
  }
}

/** Root runs nothing in a directory whose owner can change the manifest and the logs. */
function refuseForeign(handle: AllocHandle): void {
  if (!isForeign(handle)) return
  const user = `'#${handle.ownerId}'`
  throw new SupervisorError(
    `${handle.directory} belongs to user ${handle.ownerId}: run the command as that user (sudo -u ${user} outpost alloc run …), or use another -id`,
  )
}

function refuseRunning(id: string, previous: Manifest): void {
  if (isSupervised(previous)) throw new SupervisorError(inUse(id, previous))
  const orphan = processesOf(previous).find(isAlive)
  if (!orphan) return
  throw new SupervisorError(
    `process ${orphan.pid} of allocation ${id} runs without its supervisor, stop it with: outpost alloc stop ${id}`,
  )
}

function inUse(id: string, manifest: Manifest | undefined): string {
  const pid = manifest && supervisorOf(manifest)?.pid
  const who = pid === undefined ? '' : ` (supervisor ${pid})`
  return `allocation ${id} is running${who}, stop it with: outpost alloc stop ${id}`
}

function manifestOf(handle: AllocHandle): Manifest | undefined {
  try {
    return readManifest(handle.at)
  } catch (error) {
    throw new SupervisorError(`${handle.directory}: ${messageOf(error)}`, { cause: error })
  }
}

/** Resolves to the function that releases the lock, or to undefined if another process holds it. */
async function lockAllocation(directory: string): Promise<(() => void) | undefined> {
  const { dev, ino } = statSync(directory)
  const server = createServer((socket) => socket.destroy())
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(`\0outpost-alloc-${dev}-${ino}`, resolve)
    })
  } catch (error) {
    if (isErrno(error, 'EADDRINUSE')) return undefined
    throw error
  }
  server.unref()
  return () => server.close()
}
