/**
 * Values and credentials on the command line. `@FILE` is the content of a file, `-` is standard input, `\\@TEXT` is the text `@TEXT`, and
 * everything else is the value itself.
 *
 * Credentials (key shares, tokens, passwords, codes) can also be typed on a terminal without echo. They lose the line terminator,
 * because editors and `echo` append one. Data of a request (`data-input.ts`) is used unchanged, as with `vault`: a secret may be a file
 * that ends with a newline. Other users of the machine can read an argument in the process list until this process has hidden it.
 */
import { readFileSync } from 'node:fs'
import { messageOf } from '../../platform/errors.ts'
import { CommandError, type CommandIo } from '../framework/define-command.ts'
import { UsageError } from '../framework/options.ts'

/** Above the size of an encrypted key share. */
const SECRET_BYTES_MAX = 1024 * 1024
const CTRL_C = '\u0003'
const CTRL_D = '\u0004'
const CTRL_U = '\u0015'
const INTERRUPTED = 130

const isTerminal = () => process.getBuiltinModule('node:tty').isatty(0)

/** `secretOperand` rejects surplus operands, because the usual error would show a secret. */
export const OPERANDS_MAX = Number.MAX_SAFE_INTEGER

/**
 * For commands without a counterpart in `vault`: the operand with a source, `@FILE` or `-`; undefined without one. Throws UsageError,
 * which does not contain the operands, for a secret as an argument.
 */
export function secretOperand(operands: readonly string[], what: string): string | undefined {
  const [given, ...more] = operands
  if (given === undefined) return undefined
  if (more.length === 0 && sourceOf(given).from !== 'argument') return given
  hideArguments()
  throw new UsageError(
    `${what} is not accepted as an argument, because other users of this machine can read it: give it on standard input (-) or in a file (@FILE)`,
  )
}

export interface SecretPrompt {
  /** For messages: `key share`. */
  readonly what: string
  /** On a terminal. */
  readonly prompt: string
  /** True for a password. Otherwise spaces at both ends are removed, because tokens, shares and IDs have none. */
  readonly keepsSpaces?: boolean
}

/** Replaces the arguments in the process list with the program's name. */
export function hideArguments(): void {
  process.title = 'outpost'
}

/**
 * One secret: the first non-empty line of its source, without the line terminator. Throws UsageError without a value and without a
 * terminal, and for an unreadable file; CommandError for an empty source.
 */
export async function readSecret(
  given: string | undefined,
  secretPrompt: SecretPrompt,
  io: CommandIo,
): Promise<string> {
  const [first] = await readSecrets(given, secretPrompt, io)
  return first
}

/** As `readSecret`, for all lines of a file or of standard input. */
export async function readSecrets(
  given: string | undefined,
  secretPrompt: SecretPrompt,
  io: CommandIo,
): Promise<readonly [string, ...string[]]> {
  const source: ValueSource = given === undefined ? { from: 'stdin' } : sourceOf(given)
  if (source.from === 'argument') {
    hideArguments()
    return [source.value]
  }
  if (given === undefined && !isTerminal()) {
    throw new UsageError(`missing ${secretPrompt.what}: use @FILE to read a file, or - to read standard input`)
  }
  const [first, ...more] = linesOf(await textFrom(source, secretPrompt, io), secretPrompt.keepsSpaces ?? false)
  if (first !== undefined) return [first, ...more]
  throw new CommandError(
    `missing ${secretPrompt.what}: ${source.from === 'file' ? source.file : 'standard input'} is empty`,
  )
}

/** With `-` on a terminal, prompts as without a value. */
async function textFrom(
  source: Exclude<ValueSource, { readonly from: 'argument' }>,
  secretPrompt: SecretPrompt,
  io: CommandIo,
): Promise<string> {
  if (source.from === 'file') return fileText(source.file)
  return isTerminal() ? await promptWithoutEcho(secretPrompt.prompt, io) : await standardInput(SECRET_BYTES_MAX)
}

function linesOf(text: string, keepsSpaces: boolean): string[] {
  const lines = text.split(/\r?\n/)
  return (keepsSpaces ? lines : lines.map((line) => line.trim())).filter(Boolean)
}

/** Reads a line from the terminal without echo. Throws CommandError for Ctrl-C. */
async function promptWithoutEcho(prompt: string, io: CommandIo): Promise<string> {
  const terminal = process.stdin
  const restore = () => void terminal.setRawMode(false)
  const leave = () => {
    restore()
    process.exit(INTERRUPTED)
  }
  // Before the prompt, so that fast input is not echoed.
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
    for (const character of chunk) {
      if (character === '\r' || character === '\n') return line
      if (character === CTRL_C || (character === CTRL_D && line === ''))
        throw new CommandError('interrupted', INTERRUPTED)
      if (character === '\u007f' || character === '\b') line = line.slice(0, -1)
      else if (character === CTRL_U) line = ''
      else if (character >= ' ') line += character
    }
  }
  return line
}

export type ValueSource =
  | { readonly from: 'file'; readonly file: string }
  | { readonly from: 'stdin' }
  | { readonly from: 'argument'; readonly value: string }

export function sourceOf(given: string): ValueSource {
  if (given === '-') return { from: 'stdin' }
  if (given.startsWith('@')) return { from: 'file', file: given.slice(1) }
  return { from: 'argument', value: given.startsWith('\\@') ? given.slice(1) : given }
}

/** The content of a file in UTF-8; a pipe is read to its end. Throws UsageError. */
export function fileText(file: string): string {
  if (file === '') throw new UsageError('missing file name after @')
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new UsageError(`cannot read ${file}: ${messageOf(error)}`, { cause: error })
  }
}

/** Reads standard input to its end. Throws CommandError for more than `bytesMax` bytes. */
export async function standardInput(bytesMax: number): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > bytesMax) throw new CommandError(`standard input exceeds ${bytesMax} bytes`)
  }
  return Buffer.concat(chunks).toString('utf8')
}
