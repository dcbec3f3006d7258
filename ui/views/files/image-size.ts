/** Pixels of an image, from its header: a small file may have so many that a browser needs gigabytes to show it. */

/** Four bytes in memory for each. */
export const PIXELS_MAX = 40_000_000

interface Dimensions {
  readonly width: number
  readonly height: number
}

/** Undefined if the header has none: then the browser cannot show the image either, or it has another form than usual. */
export function dimensionsOf(bytes: ArrayBuffer, contentType: string): Dimensions | undefined {
  try {
    return READERS[contentType]?.(new DataView(bytes))
  } catch (error) {
    // The file ends within its header.
    if (error instanceof RangeError) return undefined
    throw error
  }
}

export function hasTooManyPixels({ height, width }: Dimensions): boolean {
  return width * height > PIXELS_MAX
}

const READERS: Readonly<Record<string, (view: DataView) => Dimensions | undefined>> = {
  'image/png': (view) => ({ width: view.getUint32(16), height: view.getUint32(20) }),
  'image/gif': (view) => ({ width: view.getUint16(6, true), height: view.getUint16(8, true) }),
  'image/bmp': (view) => ({ width: Math.abs(view.getInt32(18, true)), height: Math.abs(view.getInt32(22, true)) }),
  'image/jpeg': ofJpeg,
  'image/webp': ofWebp,
  'image/avif': ofAvif,
}

/** The first frame header; segments before it are skipped. */
function ofJpeg(view: DataView): Dimensions | undefined {
  for (let at = 2; at + 9 <= view.byteLength; ) {
    const marker = view.getUint16(at)
    if (marker < 0xff00) return undefined
    const isFrame = marker >= 0xffc0 && marker <= 0xffcf && ![0xffc4, 0xffc8, 0xffcc].includes(marker)
    if (isFrame) return { width: view.getUint16(at + 7), height: view.getUint16(at + 5) }
    at += marker === 0xffff ? 1 : 2 + view.getUint16(at + 2)
  }
  return undefined
}

const FOURTEEN_BITS = 0x3fff

function ofWebp(view: DataView): Dimensions | undefined {
  switch (textAt(view, 12)) {
    case 'VP8 ':
      return { width: view.getUint16(26, true) & FOURTEEN_BITS, height: view.getUint16(28, true) & FOURTEEN_BITS }
    case 'VP8L': {
      const packed = view.getUint32(21, true)
      return { width: (packed & FOURTEEN_BITS) + 1, height: ((packed >>> 14) & FOURTEEN_BITS) + 1 }
    }
    case 'VP8X':
      return { width: 1 + uint24(view, 24), height: 1 + uint24(view, 27) }
    default:
      return undefined
  }
}

/** The largest of all items: a grid has one for the whole. */
function ofAvif(view: DataView): Dimensions | undefined {
  let largest: Dimensions | undefined
  for (let at = 4; at + 16 <= Math.min(view.byteLength, AVIF_HEADER_BYTES); at++) {
    if (view.getUint8(at) !== 0x69 || textAt(view, at) !== 'ispe') continue
    const found = { width: view.getUint32(at + 8), height: view.getUint32(at + 12) }
    if (!largest || found.width * found.height > largest.width * largest.height) largest = found
  }
  return largest
}

const AVIF_HEADER_BYTES = 64 * 1024

function textAt(view: DataView, at: number): string {
  return String.fromCharCode(view.getUint8(at), view.getUint8(at + 1), view.getUint8(at + 2), view.getUint8(at + 3))
}

function uint24(view: DataView, at: number): number {
  return view.getUint16(at, true) | (view.getUint8(at + 2) << 16)
}
