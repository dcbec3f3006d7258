/**
 * Opening a path beneath a directory, and nothing else.
 *
 * The kernel is never given a path that a task can influence as a whole. The walk goes one component at a time from a
 * descriptor of the root, each opened with O_PATH and O_NOFOLLOW through `/proc/self/fd/<parent>/<name>` (Node has no
 * openat), so a name is looked up in exactly the directory that was opened before. Symlinks are read and followed here:
 * a relative target continues from the directory that holds the link, an absolute one must lie inside the root, and
 * every `..` that would leave the root is an escape. A swap of any component during the walk changes only which file
 * inside the root is found.
 *
 * O_PATH opens nothing: no pipe is drained, no device woken, no permission on the content is needed. Content is read by
 * opening `/proc/self/fd/<fd>` again, which is the very inode that was judged, whatever its name points at by then.
 * Comparing a resolved name instead (readlink of the descriptor) would be fooled by a task that mounts a tree of its
 * own under the same name in another mount namespace; the walk never leaves ours.
 */
import { type BigIntStats, closeSync, constants, fstatSync, openSync, readlinkSync } from 'node:fs'
import { isErrno, Refusal } from '../../platform/errors.ts'

/** Linux's O_PATH, the same on every architecture Node supports; missing from node:fs. */
const O_PATH = 0o10000000
/** Our descriptors by name; `/proc/self` would be one more symlink for every component. */
const FDS = `/proc/${process.pid}/fd`
const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY, O_NONBLOCK, O_NOCTTY } = constants
const BIGINT = { bigint: true } as const
/** As the kernel's own limit. */
const SYMLINKS_MAX = 40
/** Components of one walk; each directory on the way holds a descriptor until the walk ends. */
const DEPTH_MAX = 256
const PATH_BYTES_MAX = 4096
/** Steps of one walk, its symlinks included: without it, 40 links of `a/../a/../…` would keep everybody waiting. */
const STEPS_MAX = 4096

/** A file or directory that was found beneath the root. Close it with `closeSync(fd)`. */
export interface Found {
  /** O_PATH descriptor: good for fstat and for opening again, not for reading. */
  readonly fd: number
  /** Names from the root, symlinks resolved; empty for the root itself. */
  readonly names: readonly string[]
  readonly stat: BigIntStats
}

/** The path is no path beneath any root: `..`, too long, NUL. */
export function cleanPath(path: string): string[] {
  if (path.includes('\0')) throw new Refusal('invalid_request', 'invalid path: it contains a NUL byte')
  if (Buffer.byteLength(path) > PATH_BYTES_MAX) {
    throw new Refusal('path_too_long', `path is longer than ${PATH_BYTES_MAX} bytes`)
  }
  const names: string[] = []
  for (const name of path.split('/')) {
    if (name === '' || name === '.') continue
    if (name !== '..') names.push(name)
    else if (names.pop() === undefined) throw escapes()
  }
  if (names.length > DEPTH_MAX) throw new Refusal('path_too_long', `path has more than ${DEPTH_MAX} components`)
  return names
}

function escapes(): Refusal {
  return new Refusal('invalid_request', 'Path escapes the alloc directory')
}

/**
 * Finds `path` beneath `root` (an absolute path without symlinks). Symlinks are followed as described above.
 * Throws a Refusal for an escape, a loop or an over-long path; system errors (ENOENT, EACCES, ...) as they are.
 */
export function openBeneath(root: string, path: string): Found {
  return new Walk(root).to(cleanPath(path))
}

/** Opens the content of a found regular file for reading. The new descriptor is the same inode, whatever happened since. */
export function openContent(found: Found): number {
  return openSync(`${FDS}/${found.fd}`, O_RDONLY | O_NONBLOCK | O_NOCTTY)
}

class Walk {
  readonly #root: string
  /** Descriptors of the root and of each directory of `#names`. */
  readonly #fds: number[] = []
  #names: string[] = []
  #links = 0

  constructor(root: string) {
    this.#root = root
  }

  to(names: readonly string[]): Found {
    try {
      this.#fds.push(openSync(this.#root, O_PATH | O_DIRECTORY | O_NOFOLLOW))
      return this.#walk([...names])
    } finally {
      for (const fd of this.#fds) closeSync(fd)
    }
  }

  #walk(queue: string[]): Found {
    let steps = 0
    for (let name = queue.shift(); name !== undefined; name = queue.shift()) {
      if (++steps > STEPS_MAX) throw new Refusal('path_too_long', `path takes more than ${STEPS_MAX} steps`)
      if (name === '' || name === '.') continue
      if (name === '..') this.#up()
      else if (queue.length === 0) {
        const found = this.#last(name)
        if (found) return found
        queue = this.#target(name)
      } else if (!this.#down(name)) queue = [...this.#target(name), ...queue]
    }
    return this.#here()
  }

  get #fd(): number {
    const fd = this.#fds.at(-1)
    if (fd === undefined) throw new Error('a walk always holds its root')
    return fd
  }

  #up(): void {
    if (this.#fds.length === 1) throw escapes()
    const fd = this.#fds.pop()
    if (fd !== undefined) closeSync(fd)
    this.#names.pop()
  }

  /** Enters a directory; false when the name is not one (a symlink, perhaps). */
  #down(name: string): boolean {
    if (this.#names.length >= DEPTH_MAX)
      throw new Refusal('path_too_long', `path has more than ${DEPTH_MAX} components`)
    try {
      this.#fds.push(openSync(this.#child(name), O_PATH | O_DIRECTORY | O_NOFOLLOW))
    } catch (error) {
      if (isErrno(error, 'ENOTDIR', 'ELOOP')) return false
      throw error
    }
    this.#names.push(name)
    return true
  }

  /** Opens the last component, unless it is a symlink. */
  #last(name: string): Found | undefined {
    const fd = openSync(this.#child(name), O_PATH | O_NOFOLLOW)
    try {
      const stat = fstatSync(fd, BIGINT)
      if (!stat.isSymbolicLink()) return { fd, names: [...this.#names, name], stat }
    } catch (error) {
      closeSync(fd)
      throw error
    }
    closeSync(fd)
    return undefined
  }

  /** The directory the walk stands in, as a result: for the root, and for a path whose links end in a directory. */
  #here(): Found {
    const fd = openSync(`${FDS}/${this.#fd}`, O_PATH | O_DIRECTORY)
    try {
      return { fd, names: this.#names, stat: fstatSync(fd, BIGINT) }
    } catch (error) {
      closeSync(fd)
      throw error
    }
  }

  /** Components of a symlink's target. An absolute one inside the root starts the walk again at the root. */
  #target(name: string): string[] {
    if (++this.#links > SYMLINKS_MAX) {
      throw new Refusal('invalid_request', 'Failed to check if path escapes alloc directory: too many links')
    }
    let target: string
    try {
      target = readlinkSync(this.#child(name))
    } catch (error) {
      if (!isErrno(error, 'EINVAL')) throw error
      // It is a file, and the path wants to go on below it.
      throw new Refusal('invalid_request', 'Failed to check if path escapes alloc directory: not a directory')
    }
    if (!target.startsWith('/')) return target.split('/')
    if (target !== this.#root && !target.startsWith(`${this.#root}/`)) throw escapes()
    while (this.#fds.length > 1) this.#up()
    return target.slice(this.#root.length).split('/')
  }

  #child(name: string): string {
    return `${FDS}/${this.#fd}/${name}`
  }
}
