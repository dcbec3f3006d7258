/** Members of tar archives: POSIX ustar, with the base-256 extension of GNU tar for large sizes. */

export const TAR_BLOCK_BYTES = 512
const NAME_BYTES = 100
const PREFIX_AT = 345
const PREFIX_BYTES = 155
/** Offset and length of the size in a header, and of its checksum. */
export const SIZE_AT = 124
export const SIZE_BYTES = 12
export const SUM_AT = 148
export const SUM_BYTES = 8
const OCTAL_MAX = 8 ** 11 - 1
const TYPES = { file: '0', symlink: '2', directory: '5' } as const

interface TarMemberOptions {
  readonly type?: keyof typeof TYPES
  readonly mode?: number
  /** Of a symlink. */
  readonly target?: string
}

/** The header of one member, which user and group 0 own. Throws if the path or the target is too long. */
export function tarHeader(
  path: string,
  size: number,
  atMs: number,
  { mode = 0o600, target = '', type = 'file' }: TarMemberOptions = {},
): Buffer {
  const { name, prefix } = splitPath(path)
  if (Buffer.byteLength(target) > NAME_BYTES)
    throw new Error(`the target of ${path} is longer than ${NAME_BYTES} bytes`)
  const header = Buffer.alloc(TAR_BLOCK_BYTES)
  const octal = (value: number, at: number, bytes: number) =>
    header.write(`${value.toString(8).padStart(bytes - 1, '0')}\0`, at, 'latin1')
  header.write(name, 0)
  octal(mode, 100, 8)
  octal(0, 108, 8)
  octal(0, 116, 8)
  if (size <= OCTAL_MAX) octal(size, SIZE_AT, SIZE_BYTES)
  else {
    header[SIZE_AT] = 0x80
    header.writeBigUInt64BE(BigInt(size), SIZE_AT + 4)
  }
  octal(Math.floor(atMs / 1000), 136, 12)
  header.write(TYPES[type], 156, 'latin1')
  header.write(target, 157)
  header.write('ustar\x0000', 257, 'latin1')
  header.write(prefix, PREFIX_AT)
  header.write(`${tarSumOf(header).toString(8).padStart(6, '0')}\0 `, SUM_AT, 'latin1')
  return header
}

/** A header has two fields for a path, joined by a slash. */
function splitPath(path: string): { readonly name: string; readonly prefix: string } {
  if (Buffer.byteLength(path) <= NAME_BYTES) return { name: path, prefix: '' }
  for (let at = path.indexOf('/'); at >= 0; at = path.indexOf('/', at + 1)) {
    const [prefix, name] = [path.slice(0, at), path.slice(at + 1)]
    if (name !== '' && Buffer.byteLength(name) <= NAME_BYTES && Buffer.byteLength(prefix) <= PREFIX_BYTES) {
      return { name, prefix }
    }
  }
  throw new Error(`${path} is longer than a tar archive allows`)
}

/** Bytes from the end of a member of that size to the next block. */
export function paddingOf(size: number): number {
  return (TAR_BLOCK_BYTES - (size % TAR_BLOCK_BYTES)) % TAR_BLOCK_BYTES
}

/** The checksum of a header, in which its own field counts as spaces. */
export function tarSumOf(header: Buffer): number {
  let sum = 0
  for (const [at, byte] of header.entries()) sum += at >= SUM_AT && at < SUM_AT + SUM_BYTES ? 0x20 : byte
  return sum
}

export interface TarMember extends TarMemberOptions {
  readonly path: string
  /** Empty for a symlink or a directory. */
  readonly bytes: Buffer
}

/** The end of an archive. */
export const TAR_END = Buffer.alloc(2 * TAR_BLOCK_BYTES)

/** A small member with its header and padding. */
export function tarMember(member: TarMember, atMs: number): Buffer {
  const { bytes, path } = member
  return Buffer.concat([tarHeader(path, bytes.length, atMs, member), bytes, Buffer.alloc(paddingOf(bytes.length))])
}

/** A complete archive of small members. */
export function tarArchive(members: readonly TarMember[], atMs: number): Buffer {
  return Buffer.concat([...members.map((member) => tarMember(member, atMs)), TAR_END])
}
