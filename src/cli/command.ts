/**
 * The command line: theory of operation.
 *
 * Promises: `command-table.ts` names every command and the file that defines it. A command is a value (`define-command.ts`), and its
 * file is loaded only when the command runs, so a command starts in less than 60 ms. Options are data (`options.ts`): the parser, the
 * help, shell completion and the types of the values follow from them. The parser is strict. It rejects what it does not know with a
 * suggestion, because an option that is ignored in a unit file is noticed months later.
 *
 * Exit codes: 0 success; 1 the request failed (`CommandError`, and every unexpected error); 2 the command line is invalid
 * (`UsageError`). For `status`, 2 means sealed (docs/decisions/022). For a change that the server answers with 404, 2 means that nothing
 * was changed (docs/decisions/087). `alloc run` in the foreground exits with the code of its command. An error is one line on stderr
 * that states the cause and the next step. Only data goes to stdout, so that scripts can read it.
 *
 * Commands talk to an agent over HTTP like any other client (`client/http-client.ts`), with one exception: without an address, `alloc`
 * works on the allocation directories of this host, because a supervisor and its commands must work while no agent runs. `agent`
 * is started by `main.ts`, which passes the function in `CommandServices`: this module does not import the agent's modules.
 *
 * Folders: `client` (addresses, requests, IDs), `core` (requests to the secrets core and their output), `input` (data, key shares,
 * tokens), `output` (tables, JSON, files), `streams` (logs that resume after a broken connection), `completion`, `commands`.
 *
 * Failure modes: the reader of stdout exits (`outpost alloc list | head -1`). That is not an error; the rest of the output is discarded,
 * and a command that follows a stream ends, also while the stream is idle (`reader-watch.ts`).
 */
import { writeSync } from 'node:fs'
import { isErrno, messageOf } from '../platform/errors.ts'
import {
  COMMAND_GROUPS,
  COMMAND_NAMES,
  COMMON_COMMANDS,
  type CommandGroup,
  loadCommand,
  loadCommands,
} from './command-table.ts'
import {
  type Command,
  CommandError,
  type CommandIo,
  type CommandServices,
  defineCommand,
} from './framework/define-command.ts'
import { commandHelp, groupHelp, overview, prefixHelp } from './framework/help.ts'
import { didYouMean, HelpRequest, UsageError } from './framework/options.ts'
import { escapeLine } from './framework/terminal-escapes.ts'

const HELP_WORDS = new Set(['-h', '-help', '--help'])
const VERSION_WORDS = new Set(['-v', '-version', '--version'])
const FIRST_WORDS = [...new Set([...COMMAND_NAMES.map((name) => name.split(' ')[0] ?? ''), 'help'])]

const helpCommand: Command = defineCommand({
  name: 'help',
  summary: 'Show help for a command or a group',
  options: {},
  operands: {
    shown: '[COMMAND|GROUP]',
    min: 0,
    max: Number.POSITIVE_INFINITY,
    choices: [...COMMAND_GROUPS.map(({ name }) => name), ...FIRST_WORDS],
  },
  async run(_values, words, io) {
    io.out(await helpText(words))
    return 0
  },
})

/** Why stdout is incomplete, once it is. */
let unwritten: string | undefined

/** The streams and environment of this process. Writes block, so that nothing is lost when the process exits. */
const processIo: CommandIo = {
  out: (text) => {
    unwritten ??= writeAll(1, text)
  },
  err: (text) => void writeAll(2, text),
  unwritten: () => unwritten,
  env: process.env,
}

/**
 * Runs one command line (without the program's name) and resolves to its exit code; never rejects. Without `services`, `agent` only
 * parses its options, and `validate` does not check policies.
 */
export async function runCommand(
  argv: readonly string[],
  io: CommandIo = processIo,
  services: CommandServices = {},
): Promise<number> {
  try {
    const code = await dispatch(argv, io, services)
    const fault = io.unwritten?.()
    if (code !== 0 || fault === undefined) return code
    throw new CommandError(`cannot write the output: ${fault}`)
  } catch (error) {
    io.err(`outpost: ${oneLine(messageOf(error))}\n`)
    if (error instanceof UsageError) return error.exitCode
    return error instanceof CommandError ? error.exitCode : 1
  }
}

async function dispatch(argv: readonly string[], io: CommandIo, services: CommandServices): Promise<number> {
  const [first] = argv
  if (first === undefined) {
    io.err(await helpText([]))
    return 2
  }
  if (HELP_WORDS.has(first)) {
    io.out(await helpText([]))
    return 0
  }
  const { args, command, prefix } = await findCommand(VERSION_WORDS.has(first) ? ['version'] : argv)
  if (!command) {
    io.out(await prefixText(prefix))
    return 0
  }
  try {
    return await command.execute(args, io, { ...services, commands: allCommands })
  } catch (error) {
    if (error instanceof HelpRequest) {
      io.out(commandHelp(command))
      return 0
    }
    // The help command names the next step itself.
    if (!(error instanceof UsageError) || command === helpCommand) throw error
    throw new UsageError(`${error.message} (see "outpost ${command.name} -help")`, {
      cause: error,
      exitCode: command.usageExitCode,
    })
  }
}

async function allCommands(): Promise<readonly Command[]> {
  return [...(await loadCommands(COMMAND_NAMES)), helpCommand]
}

interface CommandMatch {
  /** Undefined: the help of `prefix` is requested. */
  readonly command: Command | undefined
  readonly prefix: string
  readonly args: readonly string[]
}

/** The command that `argv` names, and the remaining arguments. Throws UsageError. */
async function findCommand(argv: readonly string[]): Promise<CommandMatch> {
  const [first = '', second] = argv
  if (first === 'help') return { command: helpCommand, prefix: '', args: argv.slice(1) }
  for (const count of [3, 2, 1]) {
    const command = await loadCommand(argv.slice(0, count).join(' '))
    if (command) return { command, prefix: '', args: argv.slice(count) }
  }
  if (!isPrefix(first)) {
    throw new UsageError(
      `unknown command ${JSON.stringify(first)}${didYouMean(first, FIRST_WORDS)} (see "outpost help")`,
    )
  }
  const prefix = second !== undefined && isPrefix(`${first} ${second}`) ? `${first} ${second}` : first
  const word = argv[prefix.split(' ').length]
  if (word !== undefined && HELP_WORDS.has(word)) return { command: undefined, prefix, args: [] }
  const next = [...new Set(namesBelow(prefix).map((name) => name.slice(prefix.length + 1).split(' ')[0] ?? ''))]
  if (word === undefined) {
    throw new UsageError(`missing word after "outpost ${prefix}", one of: ${next.join(', ')}`)
  }
  throw new UsageError(
    `unknown command ${JSON.stringify(`${prefix} ${word}`)}${didYouMean(word, next, `${prefix} `)} (see "outpost ${prefix} -help")`,
  )
}

function namesBelow(prefix: string): string[] {
  return COMMAND_NAMES.filter((name) => name.startsWith(`${prefix} `))
}

function isPrefix(words: string): boolean {
  return namesBelow(words).length > 0
}

/** The help for the words of a group, a command, or several commands. Throws UsageError. */
async function helpText(words: readonly string[]): Promise<string> {
  const name = words.join(' ')
  if (name === '') return overview(await loadCommands(COMMON_COMMANDS), COMMAND_GROUPS)
  const group = COMMAND_GROUPS.find((each) => each.name === name)
  if (group) return groupText(group)
  // A command may have commands below it: `operator members remove`.
  if (isPrefix(name) && !COMMAND_NAMES.includes(name)) return prefixText(name)
  const { command } = await findCommand(words)
  return commandHelp(command ?? helpCommand)
}

async function groupText(group: CommandGroup): Promise<string> {
  const collapsed = Object.entries(group.collapsed ?? {})
  const prefixOf = (name: string) => collapsed.find(([words]) => name.startsWith(`${words} `))
  const commands = await loadCommands(group.files.flatMap(({ names }) => names))
  const lines = new Map(
    [...commands, ...(group.name === 'program' ? [helpCommand] : [])].map(({ name, summary }) => {
      const [words, shared] = prefixOf(name) ?? []
      return words === undefined ? [name, { name, summary }] : [words, { name: `${words} ...`, summary: shared ?? '' }]
    }),
  )
  return groupHelp(group, [...lines.values()])
}

async function prefixText(prefix: string): Promise<string> {
  return prefixHelp(prefix, await loadCommands(namesBelow(prefix)))
}

/** The text may contain words of a server: characters that a terminal would interpret are escaped. */
function oneLine(text: string): string {
  return escapeLine(text.replaceAll(/\s*\n\s*/g, '; '))
}

/** Returns the fault; undefined for a reader that has left. */
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
