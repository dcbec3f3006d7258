/**
 * The tree of hashes over all entries that are replicated, as numbers and bytes (`replica.ts` says what it is for).
 *
 * An entry has a *leaf*: 20 bytes of SHA-256 over the hash of its path, its sequence, its checksum and the last bytes of its
 * value, which are the tag of its ciphertext. A *subpage* is the XOR of its leaves, so a change costs its old and its new leaf,
 * in any order, and what is wrong with a subpage can be put right at any later time by one more XOR. A *page* is the hash of its
 * subpages, the *root* that of the pages. XOR of hashes can be forged by intent; it is there for accidents.
 */
import { hash } from 'node:crypto'

export const PAGES = 256
export const SUBPAGES = 256
export const HASH_BYTES = 20
export const PAGE_HASHES_BYTES = SUBPAGES * HASH_BYTES
export const TREE_BYTES = PAGES * PAGE_HASHES_BYTES
/** Of a value: the tag of AES-GCM. */
export const TAIL_BYTES = 16

const PATH_HASH_BYTES = 32
const LEAF_INPUT_BYTES = PATH_HASH_BYTES + 8 + 4 + TAIL_BYTES

function sha256(bytes: Uint8Array | string): Buffer {
  return hash('sha256', bytes, 'buffer')
}

function cut(digest: Buffer): Buffer {
  return digest.subarray(0, HASH_BYTES)
}

/** What a leaf is made of, of one entry. */
export interface LeafSource {
  readonly sequence: number
  readonly crc: number
  /** The last bytes of the value; all of a shorter one. */
  readonly tail: Uint8Array
}

export function hashOfPath(path: string): Buffer {
  return sha256(path)
}

/** page × 256 + subpage. */
export function subpageOf(pathHash: Uint8Array): number {
  return ((pathHash[0] ?? 0) << 8) | (pathHash[1] ?? 0)
}

const input = Buffer.alloc(LEAF_INPUT_BYTES)

/** 20 bytes or more; the first 20 count. */
export function leafOf(pathHash: Uint8Array, { sequence, crc, tail }: LeafSource): Buffer {
  input.set(pathHash, 0)
  input.writeUIntBE(Math.floor(sequence / 2 ** 32), PATH_HASH_BYTES, 4)
  input.writeUInt32BE(sequence >>> 0, PATH_HASH_BYTES + 4)
  input.writeUInt32BE(crc, PATH_HASH_BYTES + 8)
  input.set(tail, PATH_HASH_BYTES + 12)
  return cut(sha256(input.subarray(0, PATH_HASH_BYTES + 12 + tail.length)))
}

export function tailOf(value: Uint8Array): Uint8Array {
  return value.subarray(Math.max(0, value.length - TAIL_BYTES))
}

/** `into` from `at` on ^= the leaf. */
export function xorInto(into: Uint8Array, at: number, leaf: Uint8Array): void {
  for (let byte = 0; byte < HASH_BYTES; byte++) into[at + byte] = (into[at + byte] ?? 0) ^ (leaf[byte] ?? 0)
}

/** Of one page, from its subpages. */
export function pageHash(tree: Uint8Array, page: number): Buffer {
  return cut(sha256(tree.subarray(page * PAGE_HASHES_BYTES, (page + 1) * PAGE_HASHES_BYTES)))
}

export function pageHashes(tree: Uint8Array): Buffer[] {
  return Array.from({ length: PAGES }, (_, page) => pageHash(tree, page))
}

export function rootOf(pages: readonly Uint8Array[]): Buffer {
  return cut(sha256(Buffer.concat(pages)))
}

/** Of a tree without entries: that of what is local to a machine, as all of that stays out of replication. */
export const EMPTY_ROOT: Buffer = rootOf(pageHashes(new Uint8Array(TREE_BYTES)))

/** Of both trees. */
export function compositeRoot(replicated: Uint8Array): Buffer {
  return cut(sha256(Buffer.concat([replicated, EMPTY_ROOT])))
}

/** The 256 hashes of a page. */
export function subpageHashes(tree: Uint8Array, page: number): Buffer[] {
  const of = Buffer.from(tree.subarray(page * PAGE_HASHES_BYTES, (page + 1) * PAGE_HASHES_BYTES))
  return Array.from({ length: SUBPAGES }, (_, at) => of.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES))
}
