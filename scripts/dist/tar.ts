/**
 * Writes tar archives in the format `ustar`, which every tar and dpkg read. Equal entries give equal bytes: owner 0:0 without
 * names, one modification time for all.
 */
import { completeTree, DIRECTORY_MODE, type TreeEntry } from './file-tree.ts'

const BLOCK_BYTES = 512
/** GNU tar pads an archive to this size. */
const RECORD_BYTES = 20 * BLOCK_BYTES
const NAME_BYTES = 100
const PREFIX_BYTES = 155
/** Eleven octal digits. */
const SIZE_LIMIT_BYTES = 8 ** 11
const SYMLINK_MODE = 0o777
const TYPES = { file: '0', symlink: '2', directory: '5' } as const

/** Paths begin with `root`, such as `./` in a Debian package; `root` itself becomes an entry where it ends in a slash. */
export function tarOf(entries: readonly TreeEntry[], root: string, modifiedSeconds: number): Buffer {
  const chunks: Buffer[] = []
  if (root !== '') {
    const top: TreeEntry = { path: '', type: 'directory', mode: DIRECTORY_MODE }
    chunks.push(headerOf(top, root, modifiedSeconds))
  }
  for (const entry of completeTree(entries)) {
    chunks.push(headerOf(entry, root, modifiedSeconds))
    if (entry.type === 'file') chunks.push(entry.content, padding(entry.content.length, BLOCK_BYTES))
  }
  chunks.push(Buffer.alloc(2 * BLOCK_BYTES))
  const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0)
  return Buffer.concat([...chunks, padding(length, RECORD_BYTES)])
}

function headerOf(entry: TreeEntry, root: string, modifiedSeconds: number): Buffer {
  const path = `${root}${entry.path}`
  const { name, prefix } = splitPath(entry.type === 'directory' && !path.endsWith('/') ? `${path}/` : path)
  const sizeBytes = entry.type === 'file' ? entry.content.length : 0
  if (sizeBytes >= SIZE_LIMIT_BYTES) throw new Error(`${path} is larger than a tar archive allows`)
  const target = entry.type === 'symlink' ? entry.target : ''
  if (Buffer.byteLength(target) > NAME_BYTES)
    throw new Error(`the target of ${path} is longer than ${NAME_BYTES} bytes`)
  const header = Buffer.alloc(BLOCK_BYTES)
  header.write(name, 0)
  header.write(octal(entry.type === 'symlink' ? SYMLINK_MODE : entry.mode, 8), 100)
  header.write(octal(0, 8), 108)
  header.write(octal(0, 8), 116)
  header.write(octal(sizeBytes, 12), 124)
  header.write(octal(modifiedSeconds, 12), 136)
  // The checksum counts its own field as spaces.
  header.write(' '.repeat(8), 148)
  header.write(TYPES[entry.type], 156)
  header.write(target, 157)
  header.write('ustar\u000000', 257)
  header.write(octal(0, 8), 329)
  header.write(octal(0, 8), 337)
  header.write(prefix, 345)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${octal(sum, 7)}\u0000 `.slice(0, 8), 148)
  return header
}

/** Zero-padded octal digits in a field of `width` bytes, of which the last is a zero byte. */
function octal(value: number, width: number): string {
  return value.toString(8).padStart(width - 1, '0')
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

function padding(length: number, unit: number): Buffer {
  return Buffer.alloc((unit - (length % unit)) % unit)
}
