/** Decodes QR codes with an independent program. */
import jsqr from 'jsqr'
import { PNG } from 'pngjs'

export interface ReadPng {
  readonly width: number
  readonly height: number
  /** Undefined if no code was found. */
  readonly text: string | undefined
}

export function readPng(png: Buffer): ReadPng {
  const { data, height, width } = PNG.sync.read(png)
  return { width, height, text: jsqr.default(new Uint8ClampedArray(data), width, height)?.data }
}

const SCALE = 4
const [BEGIN, END] = ['\u001B[30;107m', '\u001B[0m']
const [UPPER, LOWER] = ['▀█', '▄█']

/** Decodes a code printed to a terminal: black on white, two rows of modules per line. */
export function readTerminal(shown: string): string | undefined {
  const lines = shown.split('\n').filter((line) => line.startsWith(BEGIN))
  const rows = lines.flatMap((line) => line.slice(BEGIN.length, line.lastIndexOf(END)).split(''))
  const modules = rows.length / lines.length
  const width = modules * SCALE
  const pixels = new Uint8ClampedArray(width * width * 4).fill(255)
  for (let y = 0; y < width; y++) {
    const row = Math.floor(y / SCALE)
    for (let x = 0; x < width; x++) {
      const half = rows[Math.floor(row / 2) * modules + Math.floor(x / SCALE)] ?? ' '
      const isDark = (row % 2 === 0 ? UPPER : LOWER).includes(half)
      if (isDark) pixels.fill(0, (y * width + x) * 4, (y * width + x) * 4 + 3)
    }
  }
  return jsqr.default(pixels, width, width)?.data
}
