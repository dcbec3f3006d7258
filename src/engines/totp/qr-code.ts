/**
 * QR codes as a PNG and as text. The PNG is written here: with one bit for a pixel it is a tenth of the size and of the time of
 * what the library writes, and exactly as large as asked for. Runs in the worker thread of `qr.ts`, and in commands.
 */
import { crc32, deflateSync } from 'node:zlib'
import qrcode from 'qrcode'

/** Modules of white on each side, as ISO/IEC 18004 asks. */
const QUIET_ZONE = 4
const PNG_SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
const WHITE = 0xff

/** A text cannot be drawn in so few pixels, or in any number of them. */
export class UnfitCode extends Error {
  override readonly name = 'UnfitCode'
}

/** The side in modules, and whether the one at (x, y) is dark. Throws UnfitCode for a text longer than any code holds. */
function modulesOf(text: string): { readonly side: number; readonly isDark: (x: number, y: number) => boolean } {
  try {
    const { modules } = qrcode.create(text, { errorCorrectionLevel: 'M' })
    return { side: modules.size, isDark: (x, y) => modules.get(y, x) === 1 }
  } catch {
    throw new UnfitCode('the URL is too long for a QR code: use a shorter issuer or account name')
  }
}

/** A square of black and white, one bit for a pixel. Where there is little room the white border is narrower. */
export function drawnPng(text: string, sizePixels: number): Buffer {
  const { isDark, side } = modulesOf(text)
  const scale = Math.floor(sizePixels / (side + 2 * QUIET_ZONE)) || Math.floor(sizePixels / side)
  if (scale === 0) throw new UnfitCode(`the QR code needs at least ${side} pixels: use a larger qr_size`)
  const border = Math.floor((sizePixels - side * scale) / 2)
  // A line begins with the number of its filter: none.
  const stride = 1 + Math.ceil(sizePixels / 8)
  const lines = Buffer.alloc(stride * sizePixels, WHITE)
  for (let y = 0; y < sizePixels; y++) lines[y * stride] = 0
  for (let row = 0; row < side; row++) {
    const first = (border + row * scale) * stride
    for (let column = 0; column < side; column++) {
      if (!isDark(column, row)) continue
      const from = border + column * scale
      for (let x = from; x < from + scale; x++) {
        const at = first + 1 + (x >> 3)
        lines[at] = (lines[at] ?? 0) & ~(0x80 >> (x & 7))
      }
    }
    for (let again = 1; again < scale; again++) lines.copyWithin(first + again * stride, first, first + stride)
  }
  const header = Buffer.alloc(13)
  header.writeUInt32BE(sizePixels, 0)
  header.writeUInt32BE(sizePixels, 4)
  // One bit, greyscale; compression, filter and interlace as usual.
  header[8] = 1
  return Buffer.concat([PNG_SIGNATURE, chunk('IHDR', header), chunk('IDAT', deflateSync(lines)), chunk('IEND')])
}

function chunk(type: string, data = Buffer.alloc(0)): Buffer {
  const out = Buffer.alloc(12 + data.length)
  out.writeUInt32BE(data.length, 0)
  out.write(type, 4, 'latin1')
  data.copy(out, 8)
  out.writeUInt32BE(crc32(out.subarray(4, 8 + data.length)), 8 + data.length)
  return out
}

const COLOURS = '\u001B[30;107m'
const NO_COLOURS = '\u001B[0m'
/** By whether the upper and the lower module are dark. */
const HALVES = [' ', '▄', '▀', '█'] as const

/** Two rows of modules in a line of text, black on white whatever the terminal's colours are; each line ends with a newline. */
export function drawnText(text: string): string {
  const { isDark, side } = modulesOf(text)
  const dark = (x: number, y: number) => x >= 0 && y >= 0 && x < side && y < side && isDark(x, y)
  let out = ''
  for (let y = -QUIET_ZONE; y < side + QUIET_ZONE; y += 2) {
    out += COLOURS
    for (let x = -QUIET_ZONE; x < side + QUIET_ZONE; x++) {
      out += HALVES[(dark(x, y) ? 2 : 0) + (dark(x, y + 1) ? 1 : 0)]
    }
    out += `${NO_COLOURS}\n`
  }
  return out
}
