/**
 * Colours that a log names by numbers, of the table of 256 or of 24 bits, were chosen for the background of one terminal. They are mixed with
 * the colour of the text, or with black or white on a background of the log, until the text can be read: 4.5 : 1 as for all text of the page.
 */
type Rgb = readonly [red: number, green: number, blue: number]

/** Values of `rgb()`. */
export interface NumberColors {
  readonly light: string
  readonly dark: string
}

const CONTRAST_MIN = 4.5
const STEPS = 20
/** A log may name each of 16 million colours. */
const KEPT_MAX = 4096
const BLACK: Rgb = [0, 0, 0]
const WHITE: Rgb = [255, 255, 255]
/** Of style/tokens.css: the text, and the background of rows that is nearest to it, which is that of the selected one. */
const LIGHT = { text: [0x1b, 0x1d, 0x22], background: [0xe4, 0xec, 0xfd] } as const
const DARK = { text: [0xe7, 0xe9, 0xee], background: [0x1d, 0x2c, 0x4d] } as const

const kept = new Map<string, NumberColors>()

/** The text colour of a piece whose colour or background is a number, in both schemes. */
export function numberColors(color: string | undefined, background: string | undefined): NumberColors {
  const key = `${color ?? ''}/${background ?? ''}`
  let found = kept.get(key)
  if (!found) {
    found = colorsFor(color, background)
    if (kept.size >= KEPT_MAX) kept.clear()
    kept.set(key, found)
  }
  return found
}

function colorsFor(color: string | undefined, background: string | undefined): NumberColors {
  if (background === undefined) {
    const front = partsOf(color ?? '')
    return { light: readable(front, LIGHT.text, LIGHT.background), dark: readable(front, DARK.text, DARK.background) }
  }
  const back = partsOf(background)
  const strongest = contrast(BLACK, back) > contrast(WHITE, back) ? BLACK : WHITE
  const shown = readable(color === undefined ? strongest : partsOf(color), strongest, back)
  return { light: shown, dark: shown }
}

function partsOf(color: string): Rgb {
  const [red = 0, green = 0, blue = 0] = color.match(/\d+/g)?.map(Number) ?? []
  return [red, green, blue]
}

function readable(color: Rgb, text: Rgb, background: Rgb): string {
  let shown = color
  for (let step = 1; step <= STEPS && contrast(shown, background) < CONTRAST_MIN; step++) {
    shown = mixed(color, text, step / STEPS)
  }
  return `rgb(${shown.join(' ')})`
}

function mixed(from: Rgb, to: Rgb, share: number): Rgb {
  const part = (at: 0 | 1 | 2) => Math.round(from[at] + (to[at] - from[at]) * share)
  return [part(0), part(1), part(2)]
}

/** As WCAG 2 defines it. */
export function contrast(one: Rgb, other: Rgb): number {
  const [low = 0, high = 0] = [luminance(one), luminance(other)].toSorted((a, b) => a - b)
  return (high + 0.05) / (low + 0.05)
}

function luminance(color: Rgb): number {
  const [red = 0, green = 0, blue = 0] = color.map((part) => {
    const share = part / 255
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}
