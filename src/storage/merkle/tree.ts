/**
 * The Merkle tree over all replicated entries, as hashes and bytes (`replica.ts` describes its use).
 *
 * A *leaf* has 20 bytes, computed from the CRC of the entry's path, its sequence, its checksum and the last bytes of its value, which are
 * the authentication tag of the ciphertext. The CRC of the path selects the subpage. A *subpage* is the XOR of its leaves, so a change
 * takes the old and the new leaf, in any order, and a wrong subpage can be corrected later by another XOR. A *page* is the SHA-256 of
 * its subpages, the *root* that of the pages. An XOR can be forged deliberately; the tree detects accidents only.
 *
 * For the same reason a leaf is not a cryptographic hash: each commit computes several, and SHA-256 took a tenth of the time of a durable
 * write. It is five 32-bit hashes of nine words by the algorithm of MurmurHash3 with its constants: a difference in one word changes
 * all five.
 */
import { hash } from 'node:crypto'
import { crc32 } from 'node:zlib'

export const PAGES = 256
export const SUBPAGES = 256
export const HASH_BYTES = 20
export const PAGE_HASHES_BYTES = SUBPAGES * HASH_BYTES
export const TREE_BYTES = PAGES * PAGE_HASHES_BYTES
/** Length of the tag of AES-GCM at the end of a value. */
export const TAIL_BYTES = 16

/** The first 20 bytes of SHA-256. */
function shortHash(bytes: Uint8Array): Buffer {
  return hash('sha256', bytes, 'buffer').subarray(0, HASH_BYTES)
}

/** Input of a leaf, beside the path. */
export interface LeafSource {
  readonly sequence: number
  readonly crc: number
  /** The last bytes of the value; the whole of a shorter one. */
  readonly tail: Uint8Array
}

/** Index of the subpage of a path: page × 256 + subpage. */
export function subpageOf(path: string): number {
  return crc32(path) >>> 16
}

/** Five words of 32 bits. */
export type LeafHash = Int32Array

const LEAF_WORDS = HASH_BYTES / 4
/** A seed for each word of a leaf: the first fractional digits of pi in hex. */
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

/** Little endian; bytes after the end count as zeros. */
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

/** XORs the leaf into `into` at `at`. */
export function xorLeaf(into: Uint8Array, at: number, leaf: LeafHash): void {
  for (let byte = 0; byte < HASH_BYTES; byte++) {
    into[at + byte] = (into[at + byte] ?? 0) ^ ((leaf[byte >> 2] ?? 0) >>> ((byte & 3) << 3))
  }
}

/** XORs 20 bytes of `from` at `fromAt` into `into` at `at`. */
export function xorBytes(into: Uint8Array, at: number, from: Uint8Array, fromAt: number): void {
  for (let byte = 0; byte < HASH_BYTES; byte++) into[at + byte] = (into[at + byte] ?? 0) ^ (from[fromAt + byte] ?? 0)
}

/** The hash of one page. */
export function pageHash(tree: Uint8Array, page: number): Buffer {
  return shortHash(tree.subarray(page * PAGE_HASHES_BYTES, (page + 1) * PAGE_HASHES_BYTES))
}

function pageHashes(tree: Uint8Array): Buffer[] {
  return Array.from({ length: PAGES }, (_, page) => pageHash(tree, page))
}

export function rootOf(pages: readonly Uint8Array[]): Buffer {
  return shortHash(Buffer.concat(pages))
}

/** The root of a tree without entries: that of the local tree, because local entries are not replicated. */
export const EMPTY_ROOT: Buffer = rootOf(pageHashes(new Uint8Array(TREE_BYTES)))

/** The root over the replicated and the local tree. */
export function compositeRoot(replicated: Uint8Array): Buffer {
  return shortHash(Buffer.concat([replicated, EMPTY_ROOT]))
}

/** The 256 hashes of a page. */
export function subpageHashes(tree: Uint8Array, page: number): Buffer[] {
  const of = Buffer.from(tree.subarray(page * PAGE_HASHES_BYTES, (page + 1) * PAGE_HASHES_BYTES))
  return Array.from({ length: SUBPAGES }, (_, at) => of.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES))
}
