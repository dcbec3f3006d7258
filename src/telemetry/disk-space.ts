/**
 * Checks that the data directories are writable, and measures their free space. It runs in the background, so a device that
 * hangs delays no request; a check that exceeds its timeout counts as a fault.
 */
import { open, statfs, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { errnoOf } from '../platform/errors.ts'

/** Below this, a commit of the largest body may fail. */
export const FREE_BYTES_MIN = 16 << 20
/** Fraction of a small file system below which it counts as full. */
const FREE_PART_MIN = 0.02
/** Timeout of a check. */
const CHECK_TIMEOUT_MS = 3000
/** Minimum interval of write checks, which change the file system. */
const WRITE_INTERVAL_MS = 10_000
const WRITTEN = Buffer.alloc(4096)

interface DiskCheck {
  readonly freeBytes: number | undefined
  /** Undefined without a fault. */
  readonly fault: string | undefined
}

export class DiskSpace {
  readonly #directories: readonly string[]
  readonly #checks = new Map<string, DiskCheck>()
  readonly #writtenAtMs = new Map<string, number>()
  #count = 0

  /** `directories` exist and are owned by this process. */
  constructor(directories: readonly string[]) {
    this.#directories = [...new Set(directories)]
  }

  /** Free bytes of the file system of a directory; undefined while unknown. */
  freeBytes(directory: string): number | undefined {
    return this.#checks.get(directory)?.freeBytes
  }

  /** Fault of the first faulty directory; undefined if all are writable. */
  get fault(): string | undefined {
    return [...this.#checks.values()].find(({ fault }) => fault !== undefined)?.fault
  }

  /** Free bytes of the fullest file system. */
  get leastFreeBytes(): number | undefined {
    const known = [...this.#checks.values()].flatMap(({ freeBytes }) => (freeBytes === undefined ? [] : [freeBytes]))
    return known.length === 0 ? undefined : Math.min(...known)
  }

  /** Checks all directories. Never rejects. */
  async refresh(): Promise<void> {
    await Promise.all(
      this.#directories.map(async (directory) => {
        const late = new Promise<DiskCheck>((resolve) => {
          const fault = `the file system does not respond within ${CHECK_TIMEOUT_MS / 1000} s`
          setTimeout(() => resolve({ freeBytes: undefined, fault }), CHECK_TIMEOUT_MS).unref()
        })
        this.#checks.set(directory, await Promise.race([this.#check(directory), late]))
      }),
    )
  }

  async #check(directory: string): Promise<DiskCheck> {
    let freeBytes: number | undefined
    try {
      const { bavail, blocks, bsize } = await statfs(directory)
      freeBytes = bavail * bsize
      const least = Math.min(FREE_BYTES_MIN, blocks * bsize * FREE_PART_MIN)
      if (freeBytes < least) return { freeBytes, fault: `disk full: ${freeBytes} bytes are free` }
      const nowMs = performance.now()
      const isDue = nowMs - (this.#writtenAtMs.get(directory) ?? Number.NEGATIVE_INFINITY) >= WRITE_INTERVAL_MS
      const failedBefore = this.#checks.get(directory)?.fault !== undefined
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

  /** Only a write detects a read-only file system or a lack of inodes. */
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
