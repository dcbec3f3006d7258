/**
 * Writes tar archives in the format `ustar`, which every tar and dpkg read. Equal entries give equal bytes: owner 0:0 without
 * names, one modification time for all.
 */
import { NAME_BYTES, PREFIX_BYTES, TAR_BLOCK_BYTES, TAR_END, tarMember } from '../../src/platform/tar.ts'
import { completeTree, DIRECTORY_MODE, type TreeEntry } from './file-tree.ts'

/** GNU tar pads an archive to this size. */
const RECORD_BYTES = 20 * TAR_BLOCK_BYTES
const SYMLINK_MODE = 0o777
const MILLISECONDS = 1000

/** Paths begin with `root`, such as `./` in a Debian package; `root` itself becomes an entry where it ends in a slash. */
export function tarOf(entries: readonly TreeEntry[], root: string, modifiedSeconds: number): Buffer {
  const top: readonly TreeEntry[] = root === '' ? [] : [{ path: '', type: 'directory', mode: DIRECTORY_MODE }]
  const all = [...top, ...completeTree(entries)]
  const archive = Buffer.concat([...all.map((entry) => memberOf(entry, root, modifiedSeconds)), TAR_END])
  const paddedBytes = Math.ceil(archive.length / RECORD_BYTES) * RECORD_BYTES
  return Buffer.concat([archive], paddedBytes)
}

function memberOf(entry: TreeEntry, root: string, modifiedSeconds: number): Buffer {
  const path = `${root}${entry.path}`
  const { name, prefix } = splitPath(entry.type === 'directory' && !path.endsWith('/') ? `${path}/` : path)
  const target = entry.type === 'symlink' ? entry.target : ''
  if (Buffer.byteLength(target) > NAME_BYTES)
    throw new Error(`the target of ${path} is longer than ${NAME_BYTES} bytes`)
  const bytes = entry.type === 'file' ? entry.content : Buffer.alloc(0)
  const mode = entry.type === 'symlink' ? SYMLINK_MODE : entry.mode
  return tarMember({ name, bytes }, modifiedSeconds * MILLISECONDS, { type: entry.type, mode, prefix, target })
}

/** `ustar` has two fields for a path, joined by a slash. */
function splitPath(path: string): { name: string; prefix: string } {
  if (Buffer.byteLength(path) <= NAME_BYTES) return { name: path, prefix: '' }
  for (let at = path.indexOf('/'); at >= 0; at = path.indexOf('/', at + 1)) {
    const [prefix, name] = [path.slice(0, at), path.slice(at + 1)]
    if (name !== '' && Buffer.byteLength(name) <= NAME_BYTES && Buffer.byteLength(prefix) <= PREFIX_BYTES) {
      return { name, prefix }
    }
  }
  throw new Error(`${path} is longer than a tar archive allows`)
}
