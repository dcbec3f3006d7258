/** File attributes in the format of the client API: Go's mode string and RFC 3339 times with nanoseconds. */
import { type BigIntStats, constants } from 'node:fs'

const TYPE_LETTERS: readonly (readonly [number, string])[] = [
  [constants.S_IFDIR, 'd'],
  [constants.S_IFLNK, 'L'],
  [constants.S_IFBLK, 'D'],
  [constants.S_IFIFO, 'p'],
  [constants.S_IFSOCK, 'S'],
  [constants.S_IFCHR, 'Dc'],
]

/** Go's `fs.FileMode.String()`: type letters (or `-`), then nine permission letters. `mode` is st_mode. */
function goModeString(mode: number): string {
  let letters = TYPE_LETTERS.find(([bits]) => (mode & constants.S_IFMT) === bits)?.[1] ?? ''
  if (mode & 0o4000) letters += 'u'
  if (mode & 0o2000) letters += 'g'
  if (letters.endsWith('c')) letters = letters.replace('c', '') + 'c'
  if (mode & 0o1000) letters += 't'
  let out = letters === '' ? '-' : letters
  for (let bit = 8; bit >= 0; bit--) out += mode & (1 << bit) ? 'rwx'.charAt((8 - bit) % 3) : '-'
  return out
}

/** RFC 3339 in UTC without trailing zeros, as Go's RFC3339Nano. `ns` since the Unix epoch. */
function rfc3339Nano(ns: bigint): string {
  const floorMs = ns >= 0n ? ns / 1_000_000n : -((-ns + 999_999n) / 1_000_000n)
  const seconds = new Date(Number(floorMs)).toISOString().slice(0, 19)
  const nanos = ((ns % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n
  const decimals = nanos.toString().padStart(9, '0').replace(/0+$/, '')
  return decimals === '' ? `${seconds}Z` : `${seconds}.${decimals}Z`
}

/** AllocFileInfo of the client API, with the keys in Nomad's order. */
export interface FileInfo {
  readonly ContentType?: string
  readonly FileMode: string
  readonly IsDir: boolean
  readonly ModTime: string
  readonly Name: string
  readonly Size: number
}

export function fileInfo(name: string, stat: BigIntStats, contentType?: string): FileInfo {
  return {
    ...(contentType === undefined ? {} : { ContentType: contentType }),
    FileMode: goModeString(Number(stat.mode)),
    IsDir: stat.isDirectory(),
    ModTime: rfc3339Nano(stat.mtimeNs),
    Name: name,
    Size: Number(stat.size),
  }
}

/** The kind of file, for an error text. */
export function fileKind(stat: BigIntStats): string {
  if (stat.isDirectory()) return 'a directory'
  if (stat.isFIFO()) return 'a named pipe'
  if (stat.isSocket()) return 'a socket'
  if (stat.isBlockDevice() || stat.isCharacterDevice()) return 'a device'
  return 'a file'
}
