/** Smaller pictures: a PNG with a palette of up to 256 colors, which pages have few more of. */
import { crc32, deflateSync } from 'node:zlib'
import { PNG } from 'pngjs'

const COLORS_MAX = 256
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
const INDEXED = 3

function chunk(type: string, data: Buffer): Buffer {
  const typed = Buffer.concat([Buffer.from(type, 'latin1'), data])
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
  length.writeUInt32BE(data.length)
  sum.writeUInt32BE(crc32(typed))
  return Buffer.concat([length, typed, sum])
}

function distance(one: number, other: number): number {
  const part = (shift: number) => ((one >> shift) & 255) - ((other >> shift) & 255)
  return part(16) ** 2 + part(8) ** 2 + part(0) ** 2
}

/** The most frequent color, and then each time the one that loses most without an entry: rare colors stay, shades of a text do not. */
function paletteOf(colors: Iterable<number>): readonly number[] {
  const counts = new Map<number, number>()
  for (const color of colors) counts.set(color, (counts.get(color) ?? 0) + 1)
  const candidates = [...counts].map(([color, count]) => ({ color, count, loss: Infinity }))
  const palette: number[] = []
  while (palette.length < Math.min(COLORS_MAX, counts.size)) {
    const next = candidates.reduce((best, each) => (each.loss * each.count > best.loss * best.count ? each : best))
    palette.push(next.color)
    for (const each of candidates) each.loss = Math.min(each.loss, distance(each.color, next.color))
  }
  return palette
}

function nearest(palette: readonly number[], color: number): number {
  let best = 0
  for (const [index, each] of palette.entries()) {
    if (distance(each, color) < distance(palette[best] ?? 0, color)) best = index
  }
  return best
}

/** The same picture with a palette. */
export function withPalette(png: Buffer): Buffer {
  const { data, height, width } = PNG.sync.read(png)
  const colors = Array.from({ length: width * height }, (_, at) => data.readUIntBE(at * 4, 3))
  const palette = paletteOf(colors)
  const indexes = new Map(palette.map((color, index) => [color, index]))
  const rows = Buffer.alloc((width + 1) * height)
  for (const [at, color] of colors.entries()) {
    const index = indexes.get(color) ?? nearest(palette, color)
    indexes.set(color, index)
    // Each row begins with its filter: none.
    rows[at + Math.floor(at / width) + 1] = index
  }
  const head = Buffer.alloc(13)
  head.writeUInt32BE(width, 0)
  head.writeUInt32BE(height, 4)
  head.set([8, INDEXED], 8)
  const entries = Buffer.concat(palette.map((color) => Buffer.from([color >> 16, (color >> 8) & 255, color & 255])))
  return Buffer.concat([
    SIGNATURE,
    chunk('IHDR', head),
    chunk('PLTE', entries),
    chunk('IDAT', deflateSync(rows, { level: 9 })),
    chunk('IEND', Buffer.alloc(0)),
  ])
}
