/**
 * Key shares and tokens, as people give them: as an argument, which other users of the machine can see in the list of
 * processes until we are awake and take it out of there, as `-` on standard input, or typed on a terminal that does not
 * show them.
 */
import { CommandError, type CommandIo } from '../command-shape.ts'
import { UsageError } from '../options.ts'

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
}

/** From now on the list of processes shows the program's name only. Until now it showed the arguments, too. */
export function hideArguments(): void {
  process.title = 'outpost'
}

/** One secret. Throws UsageError when there is none and nobody to ask, CommandError when there is none on stdin. */
export async function typedSecret(given: string | undefined, wanted: Wanted, io: CommandIo): Promise<string> {
  const [first] = await typedSecrets(given, wanted, io)
  return first
}

/** The same, all lines of standard input where it comes from there. */
export async function typedSecrets(
  given: string | undefined,
  wanted: Wanted,
  io: CommandIo,
): Promise<readonly [string, ...string[]]> {
  if (given !== undefined && given !== '-') {
    hideArguments()
    return [given]
  }
  if (given === undefined && !isTerminal()) {
    throw new UsageError(`give ${wanted.what}, or - to read it from standard input`)
  }
  // On a terminal it is typed unseen, also behind a `-`.
  const text = isTerminal() ? await typed(wanted.prompt, io) : await standardInput(SECRET_BYTES_MAX)
  const [first, ...more] = text
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean)
  if (first === undefined) throw new CommandError(`${wanted.what} was expected on standard input, and nothing came`)
  return [first, ...more]
}

/** All of standard input. Throws CommandError when it is more than `bytesMax`. */
export async function standardInput(bytesMax: number): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > bytesMax) throw new CommandError(`standard input holds more than ${bytesMax} bytes`)
  }
  return Buffer.concat(chunks).toString('utf8')
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
