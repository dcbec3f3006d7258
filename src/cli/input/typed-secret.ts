/**
 * Credentials on the command line: key shares, tokens, passwords, codes. One is given as an argument, as `@FILE`, as `-` on standard
 * input, or typed on a terminal that does not show it. Other users of the machine can read an argument in the list of processes
 * until this process has started and hidden it.
 */
import { CommandError, type CommandIo } from '../framework/command-shape.ts'
import { UsageError } from '../framework/options.ts'
import { fileText, sourceOf, standardInput, type ValueSource } from './value-source.ts'

/** More than any share that is encrypted for somebody. */
const SECRET_BYTES_MAX = 1024 * 1024
const CTRL_C = '\u0003'
const CTRL_D = '\u0004'
const CTRL_U = '\u0015'
const INTERRUPTED = 130

const isTerminal = () => process.getBuiltinModule('node:tty').isatty(0)

export interface Wanted {
  /** What it is called in errors: `a key share`. */
  readonly what: string
  /** What a terminal shows. */
  readonly prompt: string
  /** True for a password, whose spaces count. Without it those at both ends are removed: no token, share or ID has any. */
  readonly keepsSpaces?: boolean
}

/** From now on the list of processes shows the program's name only. Until now it showed the arguments, too. */
export function hideArguments(): void {
  process.title = 'outpost'
}

/**
 * One secret: the first line of its source that is not empty, without the line terminator. Throws UsageError when none is given
 * and there is no terminal, or its file cannot be read; CommandError when its source is empty.
 */
export async function typedSecret(given: string | undefined, wanted: Wanted, io: CommandIo): Promise<string> {
  const [first] = await typedSecrets(given, wanted, io)
  return first
}

/** The same, all lines of a file or of standard input. */
export async function typedSecrets(
  given: string | undefined,
  wanted: Wanted,
  io: CommandIo,
): Promise<readonly [string, ...string[]]> {
  const source: ValueSource = given === undefined ? { from: 'stdin' } : sourceOf(given)
  if (source.from === 'argument') {
    hideArguments()
    return [source.value]
  }
  if (given === undefined && !isTerminal()) {
    throw new UsageError(`give ${wanted.what}, @FILE to read it from a file, or - to read it from standard input`)
  }
  const [first, ...more] = linesOf(await textFrom(source, wanted, io), wanted.keepsSpaces ?? false)
  if (first !== undefined) return [first, ...more]
  const place = source.from === 'file' ? `in ${source.file}, which is empty` : 'on standard input, and nothing came'
  throw new CommandError(`${wanted.what} was expected ${place}`)
}

/** On a terminal it is typed unseen, also behind a `-`. */
async function textFrom(
  source: Exclude<ValueSource, { readonly from: 'argument' }>,
  wanted: Wanted,
  io: CommandIo,
): Promise<string> {
  if (source.from === 'file') return fileText(source.file)
  return isTerminal() ? await typed(wanted.prompt, io) : await standardInput(SECRET_BYTES_MAX)
}

function linesOf(text: string, keepsSpaces: boolean): string[] {
  const lines = text.split(/\r?\n/)
  return (keepsSpaces ? lines : lines.map((line) => line.trim())).filter(Boolean)
}

/** A line from the terminal, not shown while it is typed. Throws CommandError when it is given up. */
async function typed(prompt: string, io: CommandIo): Promise<string> {
  const terminal = process.stdin
  const restore = () => void terminal.setRawMode(false)
  const leave = () => {
    restore()
    process.exit(INTERRUPTED)
  }
  // Before the prompt: what is typed at once would be shown otherwise.
  terminal.setRawMode(true)
  io.err(prompt)
  process.once('SIGTERM', leave).once('SIGHUP', leave)
  try {
    return await lineFrom(terminal)
  } finally {
    process.off('SIGTERM', leave).off('SIGHUP', leave)
    restore()
    terminal.pause()
    io.err('\n')
  }
}

async function lineFrom(terminal: NodeJS.ReadStream): Promise<string> {
  let line = ''
  for await (const chunk of terminal
    .setEncoding('utf8')
    .iterator({ destroyOnReturn: false }) as AsyncIterable<string>) {
    for (const sign of chunk) {
      if (sign === '\r' || sign === '\n') return line
      if (sign === CTRL_C || (sign === CTRL_D && line === '')) throw new CommandError('given up', INTERRUPTED)
      if (sign === '\u007f' || sign === '\b') line = line.slice(0, -1)
      else if (sign === CTRL_U) line = ''
      else if (sign >= ' ') line += sign
    }
  }
  return line
}
