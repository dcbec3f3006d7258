/**
 * Whether this process can write where it keeps its data, and how much space is left there. The file system is asked
 * in the background, so that a device that hangs holds up nobody; a look that is not over in time counts as a fault.
 */
import { open, statfs, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { errnoOf } from '../platform/errors.ts'

/** With less space than this, a commit of the largest body may fail. */
export const FREE_BYTES_MIN = 16 << 20
/** Below this part of a small file system it is full, whatever its size. */
const FREE_PART_MIN = 0.02
/** A device that does not answer within this time does not work. */
const LOOK_TIMEOUT_MS = 3000
/** A write costs a change of the file system: it is tried at most this often. */
const WRITE_AGAIN_MS = 10_000
const WRITTEN = Buffer.alloc(4096)

interface Look {
  readonly freeBytes: number | undefined
  /** What is wrong; undefined when nothing is. */
  readonly fault: string | undefined
}

export class DiskSpace {
  readonly #directories: readonly string[]
  readonly #looks = new Map<string, Look>()
  readonly #writtenAtMs = new Map<string, number>()
  #count = 0

  /** `directories` exist and belong to this process. */
  constructor(directories: readonly string[]) {
    this.#directories = [...new Set(directories)]
  }

  /** Bytes that this process can still write on the file system of a directory; undefined while that is not known. */
  freeBytes(directory: string): number | undefined {
    return this.#looks.get(directory)?.freeBytes
  }

  /** What is wrong with the first directory that has a fault; undefined when all can be written to. */
  get fault(): string | undefined {
    return [...this.#looks.values()].find(({ fault }) => fault !== undefined)?.fault
  }

  /** Bytes left in the fullest of the file systems. */
  get leastFreeBytes(): number | undefined {
    const known = [...this.#looks.values()].flatMap(({ freeBytes }) => (freeBytes === undefined ? [] : [freeBytes]))
    return known.length === 0 ? undefined : Math.min(...known)
  }

  /** Looks again. Never rejects. */
  async refresh(): Promise<void> {
    await Promise.all(
      this.#directories.map(async (directory) => {
        const late = new Promise<Look>((resolve) => {
          const fault = `the file system does not answer within ${LOOK_TIMEOUT_MS / 1000} s`
          setTimeout(() => resolve({ freeBytes: undefined, fault }), LOOK_TIMEOUT_MS).unref()
        })
        this.#looks.set(directory, await Promise.race([this.#look(directory), late]))
      }),
    )
  }

  async #look(directory: string): Promise<Look> {
    let freeBytes: number | undefined
    try {
      const { bavail, blocks, bsize } = await statfs(directory)
      freeBytes = bavail * bsize
      const least = Math.min(FREE_BYTES_MIN, blocks * bsize * FREE_PART_MIN)
      if (freeBytes < least) return { freeBytes, fault: `disk full: ${freeBytes} bytes are free` }
      const nowMs = performance.now()
      const isDue = nowMs - (this.#writtenAtMs.get(directory) ?? Number.NEGATIVE_INFINITY) >= WRITE_AGAIN_MS
      const failedBefore = this.#looks.get(directory)?.fault !== undefined
      if (isDue || failedBefore) {
        await this.#write(directory)
        this.#writtenAtMs.set(directory, nowMs)
      }
      return { freeBytes, fault: undefined }
    } catch (error) {
      const code = errnoOf(error) ?? 'unknown error'
      return {
        freeBytes,
        fault: code === 'ENOSPC' || code === 'EDQUOT' ? 'disk full' : `cannot be written to (${code})`,
      }
    }
  }

  /** A file system that was mounted read-only, or has no inode left, is found only by a write. */
  async #write(directory: string): Promise<void> {
    const path = join(directory, `.write-check-${process.pid}-${++this.#count}`)
    const file = await open(path, 'wx', 0o600)
    try {
      await file.write(WRITTEN)
    } finally {
      await file.close()
      await unlink(path)
    }
  }
}
