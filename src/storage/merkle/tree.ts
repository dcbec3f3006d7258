/**
 * The tree of hashes over all entries that are replicated, as numbers and bytes (`replica.ts` says what it is for).
 *
 * An entry has a *leaf*: 20 bytes that are made of the CRC of its path, its sequence, its checksum and the last bytes of its value, which
 * are the tag of its ciphertext. Its place is by the CRC of its path. A *subpage* is the XOR of its leaves, so a change costs its old and its new leaf,
 * in any order, and what is wrong with a subpage can be put right at any later time by one more XOR. A *page* is the SHA-256 of its
 * subpages, the *root* that of the pages. XOR can be forged by intent, whatever a leaf is; it is there for accidents.
 *
 * So a leaf is no cryptographic hash: each commit makes some, and one of SHA-256 took a tenth of all that a durable write takes. It is five
 * hashes of 32 bits, of nine words each, in the manner of MurmurHash3 with its constants: one word that differs changes all five.
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

/** Five words of 32 bits. */
export type LeafHash = Int32Array

const LEAF_WORDS = HASH_BYTES / 4
/** A seed for each word of a leaf: the first digits of pi behind the point, as in other hashes. */
const SEEDS = [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822] as const
const words = new Int32Array(9)

export function leafOf(path: string, { sequence, crc, tail }: LeafSource): LeafHash {
  words[0] = crc32(path)
  words[1] = crc
  words[2] = sequence
  words[3] = Math.floor(sequence / 2 ** 32)
  words[4] = tail.length
  for (let word = 0; word < 4; word++) words[5 + word] = wordIn(tail, word * 4)
  const leaf = new Int32Array(LEAF_WORDS)
  for (let at = 0; at < LEAF_WORDS; at++) leaf[at] = mixed(SEEDS[at] ?? 0)
  return leaf
}

/** Little endian; what is behind the end counts as zeros. */
function wordIn(bytes: Uint8Array, at: number): number {
  return (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8) | ((bytes[at + 2] ?? 0) << 16) | ((bytes[at + 3] ?? 0) << 24)
}

/** MurmurHash3_x86_32 of the nine words (public domain, Austin Appleby). */
function mixed(seed: number): number {
  let hash32 = seed
  for (let at = 0; at < 9; at++) {
    let word = Math.imul(words[at] ?? 0, 0xcc9e2d51)
    word = (word << 15) | (word >>> 17)
    hash32 ^= Math.imul(word, 0x1b873593)
    hash32 = (hash32 << 13) | (hash32 >>> 19)
    hash32 = (Math.imul(hash32, 5) + 0xe6546b64) | 0
  }
  hash32 ^= 36
  hash32 = Math.imul(hash32 ^ (hash32 >>> 16), 0x85ebca6b)
  hash32 = Math.imul(hash32 ^ (hash32 >>> 13), 0xc2b2ae35)
  return hash32 ^ (hash32 >>> 16)
}

/** Little endian. */
export function leafBytes(leaf: LeafHash): Buffer {
  const bytes = Buffer.alloc(HASH_BYTES)
  xorLeaf(bytes, 0, leaf)
  return bytes
}

export function tailOf(value: Uint8Array): Uint8Array {
  return value.subarray(Math.max(0, value.length - TAIL_BYTES))
}

/** `into` from `at` on ^= the leaf. */
export function xorLeaf(into: Uint8Array, at: number, leaf: LeafHash): void {
  for (let byte = 0; byte < HASH_BYTES; byte++) {
    into[at + byte] = (into[at + byte] ?? 0) ^ ((leaf[byte >> 2] ?? 0) >>> ((byte & 3) << 3))
  }
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
