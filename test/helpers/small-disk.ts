/** A small disk that a test can fill completely. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'

/** Mounts a disk of this size at a new directory. False if this process may not mount. */
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

/** Uses all free space. */
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

/** Frees the space that `fill` used. */
export function empty(disk: string): void {
  rmSync(join(disk, 'ballast'))
}
