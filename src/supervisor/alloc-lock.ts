/**
 * At most one supervisor for an allocation directory.
 *
 * The lock is the name of an abstract Unix socket, which the kernel gives to one process and takes back when that
 * process ends, however it ends: there is no stale lock to clean up. The name holds the directory's device and inode,
 * so that two data directories never meet. It does not reach across network namespaces; there the manifest's record of
 * a living supervisor is what refuses a second one.
 */
import { statSync } from 'node:fs'
import { createServer } from 'node:net'
import { isErrno } from '../platform/errors.ts'

/** Resolves to the function that releases the lock, or to undefined when somebody else holds it. */
export async function lockAllocation(directory: string): Promise<(() => void) | undefined> {
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
