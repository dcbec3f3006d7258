/**
 * The tree of hashes over all entries that are replicated, as numbers and bytes (`replica.ts` says what it is for).
 *
 * An entry has a *leaf*: 20 bytes of SHA-256 over its path, its sequence, its checksum and the last bytes of its value, which
 * are the tag of its ciphertext. Its place is by the CRC of its path. A *subpage* is the XOR of its leaves, so a change costs its old and its new leaf,
 * in any order, and what is wrong with a subpage can be put right at any later time by one more XOR. A *page* is the hash of its
 * subpages, the *root* that of the pages. XOR of hashes can be forged by intent; it is there for accidents.
 *
 * Hashes that each commit needs are texts of one character a byte: to make a buffer takes longer than to hash.
 */
import { hash } from 'node:crypto'
import { crc32 } from 'node:zlib'

export const PAGES = 256
export const SUBPAGES = 256
export const HASH_BYTES = 20
export const PAGE_HASHES_BYTES = SUBPAGES * HASH_BYTES
export const TREE_BYTES = PAGES * PAGE_HASHES_BYTES
/** Of a value: the tag of AES-GCM. */
export const TAIL_BYTES = 16

/** 20 bytes. */
function cutHash(bytes: Uint8Array): Buffer {
  return hash('sha256', bytes, 'buffer').subarray(0, HASH_BYTES)
}

/** What a leaf is made of, beside the path. */
export interface LeafSource {
  readonly sequence: number
  readonly crc: number
  /** The last bytes of the value; all of a shorter one. */
  readonly tail: Uint8Array
}

/** Of a path: page × 256 + subpage. */
export function subpageOf(path: string): number {
  return crc32(path) >>> 16
}

/** A character a byte; the first 20 count. */
export function leafOf(path: string, { sequence, crc, tail }: LeafSource): string {
  const text = Buffer.from(tail.buffer, tail.byteOffset, tail.length).toString('latin1')
  return hash('sha256', `${sequence} ${crc} ${path}\0${text}`, 'binary')
}

export function leafBytes(leaf: string): Buffer {
  return Buffer.from(leaf.slice(0, HASH_BYTES), 'latin1')
}

export function tailOf(value: Uint8Array): Uint8Array {
  return value.subarray(Math.max(0, value.length - TAIL_BYTES))
}

/** `into` from `at` on ^= the leaf. */
export function xorLeaf(into: Uint8Array, at: number, leaf: string): void {
  for (let byte = 0; byte < HASH_BYTES; byte++) into[at + byte] = (into[at + byte] ?? 0) ^ leaf.charCodeAt(byte)
}

/** `into` from `at` on ^= 20 bytes of `from`, from `fromAt` on. */
export function xorBytes(into: Uint8Array, at: number, from: Uint8Array, fromAt: number): void {
  for (let byte = 0; byte < HASH_BYTES; byte++) into[at + byte] = (into[at + byte] ?? 0) ^ (from[fromAt + byte] ?? 0)
}

/** Of one page, from its subpages. */
export function pageHash(tree: Uint8Array, page: number): Buffer {
  return cutHash(tree.subarray(page * PAGE_HASHES_BYTES, (page + 1) * PAGE_HASHES_BYTES))
}

export function pageHashes(tree: Uint8Array): Buffer[] {
  return Array.from({ length: PAGES }, (_, page) => pageHash(tree, page))
}

export function rootOf(pages: readonly Uint8Array[]): Buffer {
  return cutHash(Buffer.concat(pages))
}

/** Of a tree without entries: that of what is local to a machine, as all of that stays out of replication. */
export const EMPTY_ROOT: Buffer = rootOf(pageHashes(new Uint8Array(TREE_BYTES)))

/** Of both trees. */
export function compositeRoot(replicated: Uint8Array): Buffer {
  return cutHash(Buffer.concat([replicated, EMPTY_ROOT]))
}

/** The 256 hashes of a page. */
export function subpageHashes(tree: Uint8Array, page: number): Buffer[] {
  const of = Buffer.from(tree.subarray(page * PAGE_HASHES_BYTES, (page + 1) * PAGE_HASHES_BYTES))
  return Array.from({ length: SUBPAGES }, (_, at) => of.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES))
}
