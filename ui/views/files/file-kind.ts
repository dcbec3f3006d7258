/** What a file contains, from its first bytes. Names and types that a task chose are not used. */

export type FileKind =
  | { readonly kind: 'empty' | 'text' | 'binary' }
  | { readonly kind: 'image'; readonly contentType: string }

interface Signature {
  readonly contentType: string
  /** Bytes at the start; undefined: any. */
  readonly bytes: readonly (number | undefined)[]
}

const ANY4 = [undefined, undefined, undefined, undefined] as const

/** SVG is not here: it is text, and a document with scripts if it is opened. */
const IMAGES: readonly Signature[] = [
  { contentType: 'image/png', bytes: [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a] },
  { contentType: 'image/jpeg', bytes: [0xff, 0xd8, 0xff] },
  { contentType: 'image/gif', bytes: [0x47, 0x49, 0x46, 0x38] },
  { contentType: 'image/webp', bytes: [0x52, 0x49, 0x46, 0x46, ...ANY4, 0x57, 0x45, 0x42, 0x50] },
  { contentType: 'image/avif', bytes: [...ANY4, 0x66, 0x74, 0x79, 0x70, 0x61, 0x76, 0x69, 0x66] },
  { contentType: 'image/bmp', bytes: [0x42, 0x4d, ...ANY4, 0, 0, 0, 0] },
  { contentType: 'image/x-icon', bytes: [0, 0, 1, 0] },
]

/** A character of UTF-8 has at most four bytes, so at most three are missing at the end of the bytes. */
const PARTIAL_MAX = 3

export function kindOf(head: Uint8Array): FileKind {
  if (head.length === 0) return { kind: 'empty' }
  const image = IMAGES.find(({ bytes }) => bytes.every((byte, at) => byte === undefined || byte === head[at]))
  if (image) return { kind: 'image', contentType: image.contentType }
  return { kind: isText(head) ? 'text' : 'binary' }
}

function isText(head: Uint8Array): boolean {
  if (head.includes(0)) return false
  for (let missing = 0; missing <= Math.min(PARTIAL_MAX, head.length - 1); missing++) {
    try {
      new TextDecoder('utf-8', { fatal: true }).decode(head.subarray(0, head.length - missing))
      return true
    } catch {
      // The end may be within a character.
    }
  }
  return false
}
