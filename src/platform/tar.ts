/** Members of tar archives. */

export const TAR_BLOCK_BYTES = 512
/** Offset and length of the size in a header, and of its checksum. */
export const SIZE_AT = 124
export const SIZE_BYTES = 12
export const SUM_AT = 148
export const SUM_BYTES = 8
const OCTAL_MAX = 8 ** 11 - 1

/** Sizes of the fields for a name, the target of a symlink, and the directory before a name. */
export const NAME_BYTES = 100
export const PREFIX_BYTES = 155
/** The end of an archive. */
export const TAR_END = Buffer.alloc(2 * TAR_BLOCK_BYTES)
const TYPES = { file: '0', symlink: '2', directory: '5' } as const

export interface TarAttributes {
  readonly type?: keyof typeof TYPES
  readonly mode?: number
  /** Of a symlink. */
  readonly target?: string
  /** Directory of a name that has more than `NAME_BYTES` with it. */
  readonly prefix?: string
}

/** The header of one member, owned by root: POSIX ustar, with the base-256 extension of GNU tar for large sizes. */
export function tarHeader(
  name: string,
  size: number,
  atMs: number,
  { mode = 0o600, prefix = '', target = '', type = 'file' }: TarAttributes = {},
): Buffer {
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
  header.write(prefix, 345)
  header.write(`${tarSumOf(header).toString(8).padStart(6, '0')}\0 `, SUM_AT, 'latin1')
  return header
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

export interface TarMember {
  readonly name: string
  readonly bytes: Buffer
}

/** A small file with its header and padding. */
export function tarMember({ bytes, name }: TarMember, atMs: number, attributes: TarAttributes = {}): Buffer {
  const header = tarHeader(name, bytes.length, atMs, attributes)
  return Buffer.concat([header, bytes, Buffer.alloc(paddingOf(bytes.length))])
}

/** A whole archive of small members. */
export function tarArchive(members: readonly TarMember[], atMs: number): Buffer {
  return Buffer.concat([...members.map((member) => tarMember(member, atMs)), TAR_END])
}
