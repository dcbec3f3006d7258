/**
 * Opens a path beneath a directory, and never a path outside it.
 *
 * The kernel is never given a path that a task can influence as a whole. The walk goes one component at a time from a
 * descriptor of the root, each opened with O_PATH and O_NOFOLLOW through `/proc/self/fd/<parent>/<name>` (Node has no
 * openat), so a name is looked up in exactly the directory that was opened before. Symlinks are read and followed here:
 * a relative target continues from the directory that holds the link, an absolute one must lie inside the root, and
 * every `..` that would leave the root is an escape. A swap of any component during the walk changes only which file
 * inside the root is found.
 *
 * O_PATH does not open the content: no pipe is drained, no device is activated, no permission on the content is needed.
 * Content is read by opening `/proc/self/fd/<fd>` again, which is the inode that was checked, even if its name points
 * elsewhere by then. A comparison of resolved names (readlink of the descriptor) could be deceived by a task that mounts
 * its own tree under the same name in another mount namespace; the walk never leaves the agent's namespace.
 */
import { type BigIntStats, closeSync, constants, fstatSync, openSync, readlinkSync } from 'node:fs'
import { isErrno, Refusal } from '../../platform/errors.ts'

/** Linux's O_PATH, the same on every architecture Node supports; missing from node:fs. */
const O_PATH = 0o10000000
/** Not `/proc/self`, which would add a symlink to every component. */
const FDS = `/proc/${process.pid}/fd`
const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY, O_NONBLOCK, O_NOCTTY } = constants
const BIGINT = { bigint: true } as const
/** The kernel's limit. */
const SYMLINKS_MAX = 40
/** Components of one walk; each directory on the way holds a descriptor until the walk ends. */
const DEPTH_MAX = 256
const PATH_BYTES_MAX = 4096
/** Steps of one walk, including those of symlinks: 40 links of `a/../a/../…` would block the event loop. */
const STEPS_MAX = 4096

/** A file or directory beneath the root. Close it with `closeSync(fd)`. */
export interface PathHandle {
  /** O_PATH descriptor: valid for fstat and reopening, not for reading. */
  readonly fd: number
  /** Names from the root, symlinks resolved; empty for the root itself. */
  readonly names: readonly string[]
  readonly stat: BigIntStats
}

/** The components of a path. Throws a Refusal if it leaves the root by `..`, is too long or contains NUL. */
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
 * Resolves `path` beneath `root` (an absolute path without symlinks). Throws a Refusal for an escape, a loop or an
 * over-long path; system errors (ENOENT, EACCES, ...) are thrown unchanged.
 */
export function openBeneath(root: string, path: string): PathHandle {
  return new PathWalk(root).to(cleanPath(path))
}

/** Opens the content of a regular file for reading. The new descriptor is the same inode, even after a rename. */
export function openContent(found: PathHandle): number {
  return openSync(`${FDS}/${found.fd}`, O_RDONLY | O_NONBLOCK | O_NOCTTY)
}

class PathWalk {
  readonly #root: string
  /** Descriptors of the root and of each directory of `#names`. */
  readonly #fds: number[] = []
  #names: string[] = []
  #links = 0

  constructor(root: string) {
    this.#root = root
  }

  to(names: readonly string[]): PathHandle {
    try {
      this.#fds.push(openSync(this.#root, O_PATH | O_DIRECTORY | O_NOFOLLOW))
      return this.#walk([...names])
    } finally {
      for (const fd of this.#fds) closeSync(fd)
    }
  }

  #walk(queue: string[]): PathHandle {
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

  /** Enters a directory; false if the name is not a directory (it may be a symlink). */
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
  #last(name: string): PathHandle | undefined {
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

  /** The current directory as the result: for the root, and for a path whose links end in a directory. */
  #here(): PathHandle {
    const fd = openSync(`${FDS}/${this.#fd}`, O_PATH | O_DIRECTORY)
    try {
      return { fd, names: this.#names, stat: fstatSync(fd, BIGINT) }
    } catch (error) {
      closeSync(fd)
      throw error
    }
  }

  /** Components of a symlink's target. An absolute target inside the root restarts the walk at the root. */
  #target(name: string): string[] {
    if (++this.#links > SYMLINKS_MAX) {
      throw new Refusal('invalid_request', 'Failed to check if path escapes alloc directory: too many links')
    }
    let target: string
    try {
      target = readlinkSync(this.#child(name))
    } catch (error) {
      if (!isErrno(error, 'EINVAL')) throw error
      // A file, but the path continues below it.
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
