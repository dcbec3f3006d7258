/**
 * A full-screen display on the alternate screen of the terminal, so that closing it restores the previous text. Keys are read
 * without echo. The terminal is also restored if the process exits with an error.
 */
import type { ReadStream } from 'node:tty'
import type { CommandIo } from '../framework/define-command.ts'
import { fitted } from './terminal.ts'

const ENTER = '\u001b[?1049h\u001b[?25l'
const LEAVE = '\u001b[?25h\u001b[?1049l'
const HOME = '\u001b[H'
const CLEAR_LINE = '\u001b[K'
const CLEAR_BELOW = '\u001b[J'
const INVERSE = ['\u001b[7m', '\u001b[0m'] as const
const ROWS_DEFAULT = 24
const COLUMNS_DEFAULT = 80

/** Names of the keys that send control characters. */
const KEY_NAMES: Readonly<Record<string, string>> = {
  '\u0003': 'interrupt',
  '\u001b': 'escape',
  '\u001b[A': 'up',
  '\u001b[B': 'down',
  '\u001bOA': 'up',
  '\u001bOB': 'down',
  '\u001b[5~': 'page up',
  '\u001b[6~': 'page down',
  '\u001b[H': 'home',
  '\u001b[F': 'end',
  '\r': 'enter',
}

/** True if input and output are terminals that support control sequences. */
export function hasScreen(env: NodeJS.ProcessEnv): boolean {
  const { isatty } = process.getBuiltinModule('node:tty')
  return isatty(0) && isatty(1) && (env['TERM'] ?? 'dumb') !== 'dumb'
}

export class LiveScreen {
  readonly #io: Pick<CommandIo, 'out'>
  readonly #stdin = process.stdin as ReadStream
  readonly #onKey: (key: string) => void
  readonly #onResize: () => void
  #isOpen = false
  readonly #close = () => this.close()
  readonly #onData = (text: string) => {
    for (const key of keysIn(text)) this.#onKey(key)
  }

  constructor(
    io: Pick<CommandIo, 'out'>,
    { onKey, onResize }: { readonly onKey: (key: string) => void; readonly onResize: () => void },
  ) {
    this.#io = io
    this.#onKey = onKey
    this.#onResize = onResize
  }

  open(): void {
    this.#isOpen = true
    process.on('exit', this.#close)
    process.stdout.on('resize', this.#onResize)
    this.#stdin.setRawMode(true)
    this.#stdin.setEncoding('utf8').on('data', this.#onData)
    this.#stdin.resume()
    this.#io.out(ENTER)
  }

  get rows(): number {
    return process.stdout.rows || ROWS_DEFAULT
  }

  get #columns(): number {
    return process.stdout.columns || COLUMNS_DEFAULT
  }

  /** Draws all lines, truncated to the size of the terminal. The line with the index `inverse` is in inverse video. */
  draw(lines: readonly string[], inverse: number): void {
    if (!this.#isOpen) return
    const terminal = { isTerminal: true, colours: true, columns: this.#columns }
    const shown = lines.slice(0, this.rows).map((line, at) => {
      const text = fitted(line, terminal)
      return at === inverse ? `${INVERSE[0]}${text.padEnd(this.#columns)}${INVERSE[1]}` : `${text}${CLEAR_LINE}`
    })
    this.#io.out(`${HOME}${shown.join('\r\n')}${shown.length < this.rows ? CLEAR_BELOW : ''}`)
  }

  /** Restores the terminal. May be called repeatedly. */
  close(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    process.off('exit', this.#close)
    process.stdout.off('resize', this.#onResize)
    this.#stdin.off('data', this.#onData)
    this.#stdin.setRawMode(false)
    this.#stdin.pause()
    this.#io.out(LEAVE)
  }
}

/** The keys in a chunk of input, which may have several. */
export function keysIn(text: string): string[] {
  const keys: string[] = []
  for (let at = 0; at < text.length; ) {
    // oxlint-disable-next-line no-control-regex -- the sequences of keys begin with one
    const sequence = /^(?:\u001b\[[\d;]*[A-Za-z~]|\u001bO[A-Za-z]|[^])/u.exec(text.slice(at))?.[0] ?? text.charAt(at)
    keys.push(KEY_NAMES[sequence] ?? sequence)
    at += sequence.length
  }
  return keys
}
