/**
 * What is different on a terminal: colours, a width to keep to, a line that shows progress. Elsewhere everything is
 * plain, so that what a program reads is the same whoever started it.
 */
import type { CommandIo } from '../framework/command-shape.ts'
import { flag } from '../framework/options.ts'

export const noColorOption = flag('No colours and nothing that moves; as with NO_COLOR set')

const COLOURS = { red: 31, green: 32, yellow: 33, blue: 34, magenta: 35, cyan: 36, dim: 2 } as const
export type Colour = keyof typeof COLOURS

const COLUMNS_DEFAULT = 80
const REDRAW_MS = 100

export interface Terminal {
  readonly isTerminal: boolean
  /** True when escape sequences may be written. */
  readonly colours: boolean
  /** Characters in a line; no limit when it is no terminal. */
  readonly columns: number
}

/** What descriptor 1 or 2 is. `COLUMNS` outranks what the terminal says. */
export function terminalOf(descriptor: 1 | 2, env: NodeJS.ProcessEnv, noColor = false): Terminal {
  const { isatty } = process.getBuiltinModule('node:tty')
  if (!isatty(descriptor)) return { isTerminal: false, colours: false, columns: Number.POSITIVE_INFINITY }
  const stream = descriptor === 1 ? process.stdout : process.stderr
  const columns = Number(env['COLUMNS']) || stream.columns || COLUMNS_DEFAULT
  // NO_COLOR counts when it is set to anything but nothing: https://no-color.org
  const plain = noColor || (env['NO_COLOR'] ?? '') !== '' || (env['TERM'] ?? 'dumb') === 'dumb'
  return { isTerminal: true, colours: !plain, columns: Math.max(1, Math.floor(columns)) }
}

export function painted(text: string, colour: Colour, terminal: Terminal): string {
  return terminal.colours ? `\u001b[${COLOURS[colour]}m${text}\u001b[0m` : text
}

/** Cuts every line to the terminal's width, with a mark where something is missing. */
export function fitted(text: string, { columns }: Terminal): string {
  if (columns === Number.POSITIVE_INFINITY) return text
  return text
    .split('\n')
    .map((line) => (line.length > columns ? `${line.slice(0, columns - 1)}…` : line))
    .join('\n')
}

/** `[#####     ]` for a part from 0 to 1. */
export function bar(part: number, width: number): string {
  const full = Math.round(Math.min(Math.max(part, 0), 1) * width)
  return `[${'#'.repeat(full)}${' '.repeat(width - full)}]`
}

/** How far something is, in one line of stderr that is drawn over; nothing at all where that cannot be. */
export class Progress {
  readonly #io: Pick<CommandIo, 'err'>
  readonly #terminal: Terminal
  #drawnMs = Number.NEGATIVE_INFINITY
  #isShown = false

  constructor(io: Pick<CommandIo, 'err'>, terminal: Terminal) {
    this.#io = io
    this.#terminal = terminal
  }

  /** Draws at most ten times a second. `text` follows the bar; an unknown part has none. */
  show(part: number | undefined, text: string): void {
    const nowMs = performance.now()
    if (!this.#terminal.colours || nowMs - this.#drawnMs < REDRAW_MS) return
    this.#drawnMs = nowMs
    this.#isShown = true
    const room = this.#terminal.columns - text.length - 4
    const line = part === undefined || room < 5 ? text : `${bar(part, Math.min(room, 40))} ${text}`
    // The last column stays free: a terminal would begin a new line behind it.
    this.#io.err(`\r\u001b[K${line.slice(0, Math.max(1, this.#terminal.columns - 1))}`)
  }

  /** Takes the line away. */
  end(): void {
    if (this.#isShown) this.#io.err('\r\u001b[K')
    this.#isShown = false
  }
}
