/**
 * A command as a value: name, summary, options and operands as data, and the function that runs it. A command file exports one as
 * `command`, or several as `commands`. `command.ts` finds, parses and runs them and maps errors to exit codes; help and shell
 * completion are generated from the same data.
 */
import type { ByteSink } from './byte-sink.ts'
import { type Options, parseOptions, UsageError, type OptionValues } from './options.ts'
import type { DaemonServices } from './services.ts'

/** The streams and environment of a command; tests replace them. */
export interface CommandIo {
  /** Writes to stdout, verbatim. */
  out(text: string): void
  /** Writes to stderr, verbatim. */
  err(text: string): void
  /** Why stdout is incomplete; undefined if it is complete, or if its reader has left. */
  unwritten?(): string | undefined
  /** Opens a sink for bytes; the descriptors of this process unless given. */
  readonly openSink?: (descriptor: 1 | 2, watched: boolean) => ByteSink
  readonly env: NodeJS.ProcessEnv
}

/** The request failed: exit code 1 unless given. The message is one line: cause and next step. */
export class CommandError extends Error {
  override readonly name = 'CommandError'
  readonly exitCode: number

  constructor(message: string, exitCode = 1, options?: ErrorOptions) {
    super(message, options)
    this.exitCode = exitCode
  }
}

export interface Operands {
  /** As the help text shows them: `ID`, `FILE...`, `[PATH]`. */
  readonly shown: string
  readonly min: number
  readonly max: number
  /** Allowed values of the only operand. */
  readonly choices?: readonly string[]
  /** Follows "missing ALLOC: " in the error for too few; the usage line unless given. */
  readonly hint?: string
}

export interface CommandServices extends DaemonServices {
  /** Every command; the dispatcher provides it. */
  commands?(): Promise<readonly Command[]>
}

interface CommandDefinition<O extends Options> {
  /** All words: `alloc run`. */
  readonly name: string
  /** Imperative, at most ten words, no commas. */
  readonly summary: string
  /** Paragraphs of the help text, lines of at most 100 characters. */
  readonly details?: string
  readonly options: O
  readonly operands?: Operands
  /** True if the operands are another program's command line: its first word ends our options. */
  readonly operandsEndOptions?: boolean
  /** Exit code for an invalid command line, where 2 has another meaning. */
  readonly usageExitCode?: number
  run(values: OptionValues<O>, operands: readonly string[], io: CommandIo, services: CommandServices): Promise<number>
}

/** A command without the types of its options. */
export interface Command {
  readonly name: string
  readonly summary: string
  readonly details: string | undefined
  readonly options: Options
  readonly operands: Operands
  readonly usageExitCode: number
  /** Parses and runs; resolves to the exit code. Throws UsageError, HelpRequest and CommandError. */
  execute(args: readonly string[], io: CommandIo, services: CommandServices): Promise<number>
}

const NO_OPERANDS: Operands = { shown: '', min: 0, max: 0 }

export function defineCommand<O extends Options>(definition: CommandDefinition<O>): Command {
  const operands = definition.operands ?? NO_OPERANDS
  const order = definition.operandsEndOptions ? 'first' : 'anywhere'
  return {
    name: definition.name,
    summary: definition.summary,
    details: definition.details,
    options: definition.options,
    operands,
    usageExitCode: definition.usageExitCode ?? 2,
    execute(args, io, services) {
      const parsed = parseOptions(definition.options, args, order)
      checkOperands(definition.name, operands, parsed.operands)
      return definition.run(parsed.values, parsed.operands, io, services)
    },
  }
}

/** Throws UsageError for too few or too many. */
export function checkOperands(name: string, expected: Operands, given: readonly string[]): void {
  const { hint, max, min, shown } = expected
  if (given.length < min) {
    const required = shown.split(' ').filter((word) => word !== '--' && !word.startsWith('['))
    const missing = (required[given.length] ?? shown).replace(/\.\.\.$/, '')
    throw new UsageError(`missing ${missing}${hint === undefined ? `, usage: outpost ${name} ${shown}` : `: ${hint}`}`)
  }
  const extra = given[max]
  if (extra === undefined) return
  const takes = max === 0 ? 'takes no arguments' : `takes only ${shown}`
  throw new UsageError(`unexpected argument ${JSON.stringify(extra)}: "outpost ${name}" ${takes}`)
}
