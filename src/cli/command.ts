/**
 * The command line: theory of operation.
 *
 * Promises: one table (`command-table.ts`, with `command-table-secrets.ts`) holds every command, in the order in which
 * `help` shows them. A command is a value (`command-shape.ts`) in a file of its own, or of a few that differ in a word
 * (`secrets list`, `auth list`), and is loaded only when it is the one that runs, so that `version` does not pay for
 * the others: the whole way from the shell to the first line of output is Node's own start and a few small files. Options are data (`options.ts`); the parser, the help text, shell completion and the types of
 * the values follow from them. The parser is strict: what it does not know is refused with a suggestion, never ignored,
 * because an option that is silently skipped in a unit file is found out months later.
 *
 * Exit codes: 0 done, 1 the request failed (`CommandError`, and anything unforeseen), 2 the command line is wrong
 * (`UsageError`; of `status`, 2 means sealed: docs/decisions/022; of a change that the server answers with 404, that nothing was
 * changed: docs/decisions/087). `alloc run` in the foreground passes its command's
 * exit code on instead. An error is one line on stderr that says what to do; only data goes to stdout, so that a script
 * can read it.
 *
 * Assumes that `main.ts` hands over `process.argv` without the first two, and starts the daemon: this room must not
 * know the rooms that an agent is made of. `agent` is in the table for its help and its options; the function that
 * starts it is one of the `Parts` given to `runCommand`.
 *
 * Commands talk to an agent over HTTP like any other client (`http-client.ts`), with one exception: `alloc` works on
 * the allocation directories of this host where no address is given, because a supervisor and its commands must work while no
 * agent runs (`alloc-source.ts`). IDs and names are completed by `id-prefix.ts`; commands about several hosts are in `fleet/`.
 *
 * The commands for secrets share what is in `secrets/`: `core-access.ts` asks the core, `secret-output.ts` prints what it
 * answers, `data-input.ts` and `typed-secret.ts` read what is given to it, by arguments, files, standard input and terminal.
 *
 * Streams (`logs`, `fs tail`) go from `log-stream.ts`, which asks again from the last cursor when a connection breaks,
 * through `frame-reader.ts` and an output (`stream-output.ts`) into a `ByteSink` at its reader's pace; one
 * `FollowSession` ends them all.
 *
 * What can go wrong: the reader of our stdout leaves (`outpost alloc list | head -1`). That is not an error; what is
 * left is thrown away, and a follow ends, also when its log is idle (`reader-watch.ts`).
 */
import { writeSync } from 'node:fs'
import { isErrno, messageOf } from '../platform/errors.ts'
import type { CommandIo, TableRow } from './framework/command-shape.ts'
import { CommandError } from './framework/command-shape.ts'
import { TABLE } from './command-table.ts'
import { commandHelp, overview } from './framework/help.ts'
import { HelpWanted, UsageError } from './framework/options.ts'
import type { CommandFacts, Parts } from './framework/parts.ts'
import { shownName } from './framework/shown.ts'
import { didYouMean } from './framework/suggestion.ts'

const HELP_ENTRY = { name: 'help', summary: 'Show this text, or the help of a command' }
const HELP_WORDS = new Set(['-h', '-help', '--help'])
const VERSION_WORDS = new Set(['-v', '-version', '--version'])

/** Why stdout lacks something, once it does. */
let unwritten: string | undefined

/** The streams and environment of this process. Writes block, so nothing is lost when the process exits. */
const processIo: CommandIo = {
  out: (text) => {
    unwritten ??= writeAll(1, text)
  },
  err: (text) => void writeAll(2, text),
  unwritten: () => unwritten,
  env: process.env,
}

/**
 * Runs one command line (without the program's own name) and resolves to its exit code; never rejects.
 * Without `parts`, `agent` only reads its options, and `validate` takes policies unread.
 */
export async function runCommand(
  argv: readonly string[],
  io: CommandIo = processIo,
  parts: Parts = {},
): Promise<number> {
  try {
    const code = await dispatch(argv, io, parts)
    const fault = io.unwritten?.()
    if (code !== 0 || fault === undefined) return code
    throw new CommandError(`the output could not be written: ${fault}`)
  } catch (error) {
    io.err(`outpost: ${oneLine(messageOf(error))}\n`)
    if (error instanceof UsageError) return error.exitCode
    return error instanceof CommandError ? error.exitCode : 1
  }
}

async function dispatch(argv: readonly string[], io: CommandIo, parts: Parts): Promise<number> {
  const first = argv[0]
  if (first === undefined) {
    io.err(overview([...TABLE, HELP_ENTRY]))
    return 2
  }
  if (HELP_WORDS.has(first)) return showHelp([], io)
  if (first === 'help') return showHelp(argv.slice(1), io)
  const { row, group, args } = findRow(VERSION_WORDS.has(first) ? ['version'] : argv)
  if (row === undefined) return showHelp(group.split(' '), io)
  const { command } = await row.load()
  try {
    return await command.execute(args, io, { ...parts, commands: allCommands })
  } catch (error) {
    if (error instanceof HelpWanted) {
      io.out(commandHelp(command))
      return 0
    }
    if (!(error instanceof UsageError)) throw error
    throw new UsageError(`${error.message} (see "outpost ${row.name} -help")`, {
      cause: error,
      exitCode: command.usageExitCode,
    })
  }
}

/** What completion and its like are made from; `help` is no command of the table. */
async function allCommands(): Promise<readonly CommandFacts[]> {
  const loaded = await Promise.all(TABLE.map((row) => row.load()))
  const words = [...new Set(TABLE.map((row) => row.name.split(' ')[0] ?? ''))]
  const help = { ...HELP_ENTRY, options: {}, operands: { shown: 'COMMAND', choices: words } }
  return [...loaded.map(({ command }) => command), help]
}

interface Found {
  /** Undefined: `group` is named and its help is asked for. */
  readonly row: TableRow | undefined
  readonly group: string
  readonly args: readonly string[]
}

/** The command that `argv` names, and what is left of it. Throws UsageError. */
function findRow(argv: readonly string[]): Found {
  for (const words of [3, 2, 1]) {
    const name = argv.slice(0, words).join(' ')
    const row = TABLE.find((candidate) => candidate.name === name)
    if (row) return { row, group: '', args: argv.slice(words) }
  }
  const [first = '', second] = argv
  if (!isGroup(first)) {
    const known = new Set([...TABLE, HELP_ENTRY].map((row) => row.name.split(' ')[0] ?? ''))
    throw new UsageError(
      `unknown command ${JSON.stringify(first)}${didYouMean(first, [...known])} (see "outpost help")`,
    )
  }
  const group = second !== undefined && isGroup(`${first} ${second}`) ? `${first} ${second}` : first
  const word = argv[group.split(' ').length]
  if (word !== undefined && HELP_WORDS.has(word)) return { row: undefined, group, args: [] }
  const known = new Set(
    TABLE.filter((row) => row.name.startsWith(`${group} `)).map(
      (row) => row.name.slice(group.length + 1).split(' ')[0] ?? '',
    ),
  )
  if (word === undefined) throw new UsageError(`"outpost ${group}" needs one of ${[...known].join(', ')}`)
  throw new UsageError(
    `unknown command ${JSON.stringify(`${group} ${word}`)}${didYouMean(word, [...known], `${group} `)} (see "outpost ${group} -help")`,
  )
}

function isGroup(word: string): boolean {
  return TABLE.some((row) => row.name.startsWith(`${word} `))
}

async function showHelp(words: readonly string[], io: CommandIo): Promise<number> {
  const [first] = words
  if (first === undefined || words.join(' ') === 'help') {
    io.out(overview([...TABLE, HELP_ENTRY]))
    return 0
  }
  if (isGroup(words.join(' '))) {
    io.out(overview(TABLE, words.join(' ')))
    return 0
  }
  const { row } = findRow(words)
  if (row) io.out(commandHelp((await row.load()).command))
  return 0
}

/** An agent's own words may be part of it: what a terminal would obey is shown instead. */
function oneLine(text: string): string {
  return shownName(text.replaceAll(/\s*\n\s*/g, '; '))
}

/** Returns what went wrong, other than that nobody is there to read it. */
function writeAll(descriptor: number, text: string): string | undefined {
  const bytes = Buffer.from(text)
  let from = 0
  while (from < bytes.length) {
    try {
      from += writeSync(descriptor, bytes, from)
    } catch (error) {
      if (isErrno(error, 'EPIPE', 'EIO', 'EBADF', 'ECONNRESET')) return undefined
      if (!isErrno(error, 'EAGAIN')) return messageOf(error)
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
    }
  }
  return undefined
}
