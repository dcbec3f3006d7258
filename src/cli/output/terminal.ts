/** Terminal output: colors, line width, progress. Output to other files has neither colors nor progress, so that scripts can parse it. */
import type { CommandIo } from '../framework/define-command.ts'
import { flag } from '../framework/options.ts'

export const noColorOption = flag('Disable colors and progress output as NO_COLOR does')

const COLOURS = { red: 31, green: 32, yellow: 33, blue: 34, magenta: 35, cyan: 36, dim: 2 } as const
export type Colour = keyof typeof COLOURS

const COLUMNS_DEFAULT = 80
const REDRAW_MS = 100

export interface Terminal {
  readonly isTerminal: boolean
  /** True if escape sequences may be written. */
  readonly colours: boolean
  /** Characters per line; infinite without a terminal. */
  readonly columns: number
}

/** Properties of descriptor 1 or 2. `COLUMNS` overrides the width of the terminal. */
export function terminalOf(descriptor: 1 | 2, env: NodeJS.ProcessEnv, noColor = false): Terminal {
  const { isatty } = process.getBuiltinModule('node:tty')
  if (!isatty(descriptor)) return { isTerminal: false, colours: false, columns: Number.POSITIVE_INFINITY }
  const stream = descriptor === 1 ? process.stdout : process.stderr
  const columns = Number(env['COLUMNS']) || stream.columns || COLUMNS_DEFAULT
  // NO_COLOR has effect if it is set and not empty: https://no-color.org
  const plain = noColor || (env['NO_COLOR'] ?? '') !== '' || (env['TERM'] ?? 'dumb') === 'dumb'
  return { isTerminal: true, colours: !plain, columns: Math.max(1, Math.floor(columns)) }
}

export function painted(text: string, colour: Colour, terminal: Terminal): string {
  return terminal.colours ? `\u001b[${COLOURS[colour]}m${text}\u001b[0m` : text
}

/** Truncates lines to the width of the terminal, with an ellipsis. */
export function fitted(text: string, { columns }: Terminal): string {
  if (columns === Number.POSITIVE_INFINITY) return text
  return text
    .split('\n')
    .map((line) => (line.length > columns ? `${line.slice(0, columns - 1)}…` : line))
    .join('\n')
}

/** `[#####     ]` for a fraction from 0 to 1. */
export function bar(part: number, width: number): string {
  const full = Math.round(Math.min(Math.max(part, 0), 1) * width)
  return `[${'#'.repeat(full)}${' '.repeat(width - full)}]`
}

/** A progress line on stderr that is redrawn; no output without a terminal. */
export class Progress {
  readonly #io: Pick<CommandIo, 'err'>
  readonly #terminal: Terminal
  #drawnMs = Number.NEGATIVE_INFINITY
  #isShown = false

  constructor(io: Pick<CommandIo, 'err'>, terminal: Terminal) {
    this.#io = io
    this.#terminal = terminal
  }

  /** Draws at most ten times a second. `text` follows the bar; an unknown fraction has no bar. */
  show(part: number | undefined, text: string): void {
    const nowMs = performance.now()
    if (!this.#terminal.colours || nowMs - this.#drawnMs < REDRAW_MS) return
    this.#drawnMs = nowMs
    this.#isShown = true
    const barWidth = this.#terminal.columns - text.length - 4
    const line = part === undefined || barWidth < 5 ? text : `${bar(part, Math.min(barWidth, 40))} ${text}`
    // The last column stays free, because the terminal would wrap the line.
    this.#io.err(`\r\u001b[K${line.slice(0, Math.max(1, this.#terminal.columns - 1))}`)
  }

  /** Clears the line. */
  end(): void {
    if (this.#isShown) this.#io.err('\r\u001b[K')
    this.#isShown = false
  }
}

/** `1 entry`, `2 entries`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`
}
