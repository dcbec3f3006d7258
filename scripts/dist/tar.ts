/**
 * Writes tar archives of packages. Equal entries give equal bytes: owner 0:0 without names, one modification time for all.
 */
import { TAR_BLOCK_BYTES, type TarMember, tarArchive } from '../../src/platform/tar.ts'
import { completeTree, DIRECTORY_MODE, type TreeEntry } from './file-tree.ts'

/** GNU tar pads an archive to this size. */
const RECORD_BYTES = 20 * TAR_BLOCK_BYTES
const SYMLINK_MODE = 0o777
const NO_CONTENT = Buffer.alloc(0)

/** Paths begin with `root`, such as `./` in a Debian package; `root` itself becomes an entry where it ends in a slash. */
export function tarOf(entries: readonly TreeEntry[], root: string, modifiedSeconds: number): Buffer {
  const top: TreeEntry[] = root === '' ? [] : [{ path: '', type: 'directory', mode: DIRECTORY_MODE }]
  const members = [...top, ...completeTree(entries)].map((entry) => memberOf(entry, `${root}${entry.path}`))
  const archive = tarArchive(members, modifiedSeconds * 1000)
  return Buffer.concat([archive, Buffer.alloc((RECORD_BYTES - (archive.length % RECORD_BYTES)) % RECORD_BYTES)])
}

function memberOf(entry: TreeEntry, path: string): TarMember {
  if (entry.type === 'file') return { path, type: 'file', mode: entry.mode, bytes: entry.content }
  if (entry.type === 'symlink')
    return { path, type: 'symlink', mode: SYMLINK_MODE, target: entry.target, bytes: NO_CONTENT }
  return { path: path.endsWith('/') ? path : `${path}/`, type: 'directory', mode: entry.mode, bytes: NO_CONTENT }
}
