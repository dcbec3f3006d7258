/**
 * What a command is: its options and operands as data, and what it does. A command file exports one such value as
 * `command`; `command.ts` finds, parses, helps and maps errors to exit codes for all of them.
 */
import type { ByteSink } from './byte-sink.ts'
import type { Options, ValuesOf } from './options.ts'
import { parseOptions, UsageError } from './options.ts'
import type { Parts } from './parts.ts'

/** What a command may touch of the process, so that a test can hand it something else. */
export interface CommandIo {
  /** Writes to stdout, verbatim. */
  out(text: string): void
  /** Writes to stderr, verbatim. */
  err(text: string): void
  /** Why not all of what went to stdout is there; undefined when it is, or when its reader has left. */
  unwritten?(): string | undefined
  /** Where bytes go that are more than a text; to the descriptors of this process unless it is given. */
  readonly openSink?: (descriptor: 1 | 2, watched: boolean) => ByteSink
  readonly env: NodeJS.ProcessEnv
}

/** What was asked for could not be done: exit code 1. The message is one line that says what to do. */
export class CommandError extends Error {
  override readonly name = 'CommandError'
  readonly exitCode: number

  constructor(message: string, exitCode = 1, options?: ErrorOptions) {
    super(message, options)
    this.exitCode = exitCode
  }
}

export interface Operands {
  /** As the help text shows them: `ID`, `FILE...`. */
  readonly shown: string
  readonly min: number
  readonly max: number
  /** The words that the only one may be, when they are few. */
  readonly choices?: readonly string[]
  /** Said when there are too few. */
  readonly missing: string
}

interface Definition<O extends Options> {
  /** All words of it: `alloc run`. */
  readonly name: string
  readonly summary: string
  /** Paragraphs of the help text, lines at most 100 characters. */
  readonly details?: string
  readonly options: O
  readonly operands?: Operands
  /** True when the operands are another program's command line: its first word ends our options. */
  readonly operandsEndOptions?: boolean
  /** The exit code for a command line that is wrong, where 2 means something else. */
  readonly usageExitCode?: number
  run(values: ValuesOf<O>, operands: readonly string[], io: CommandIo, parts: Parts): Promise<number>
}

/** A command whose option types nobody needs any more. */
export interface Command {
  readonly name: string
  readonly summary: string
  readonly details: string | undefined
  readonly options: Options
  readonly operands: Operands
  readonly usageExitCode: number
  /** Parses and runs; resolves to the exit code. Throws UsageError, HelpWanted and CommandError. */
  execute(args: readonly string[], io: CommandIo, parts: Parts): Promise<number>
}

/** A command as the table has it: loaded only when it is the one that runs. */
export interface TableRow {
  readonly name: string
  readonly summary: string
  load(): Promise<{ readonly command: Command }>
}

const NO_OPERANDS: Operands = { shown: '', min: 0, max: 0, missing: '' }

export function defineCommand<O extends Options>(definition: Definition<O>): Command {
  const operands = definition.operands ?? NO_OPERANDS
  const order = definition.operandsEndOptions ? 'first' : 'anywhere'
  return {
    name: definition.name,
    summary: definition.summary,
    details: definition.details,
    options: definition.options,
    operands,
    usageExitCode: definition.usageExitCode ?? 2,
    execute(args, io, parts) {
      const parsed = parseOptions(definition.options, args, order)
      checkOperands(definition.name, operands, parsed.operands)
      return definition.run(parsed.values, parsed.operands, io, parts)
    },
  }
}

/** Throws UsageError when there are too few or too many. */
export function checkOperands(name: string, expected: Operands, given: readonly string[]): void {
  if (given.length < expected.min) throw new UsageError(expected.missing)
  const extra = given[expected.max]
  if (extra === undefined) return
  const takes = expected.max === 0 ? 'takes no arguments' : `takes ${expected.shown} and nothing more`
  throw new UsageError(`unexpected argument ${JSON.stringify(extra)}: "outpost ${name}" ${takes}`)
}
