/** A disk that a test can fill to the last byte. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'

/** Mounts one of so many MiB at a directory that it makes. False where this process has no right to mount. */
export function mountSmallDisk(path: string, mib: number): boolean {
  mkdirSync(path)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${mib}m`, 'tmpfs', path], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

/** Also while files on it are open. */
export function unmount(path: string): void {
  execFileSync('umount', ['-l', path])
}

/** Takes every byte that is left. */
export function fill(disk: string): void {
  const fd = openSync(join(disk, 'ballast'), 'a')
  for (const bytes of [1 << 20, 4096, 1]) {
    try {
      for (;;) writeSync(fd, Buffer.alloc(bytes))
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC')
    }
  }
  closeSync(fd)
}

/** Gives back what `fill` took. */
export function empty(disk: string): void {
  rmSync(join(disk, 'ballast'))
}
