/**
 * Options of the command line as data: the parser, the help text, shell completion and the types of the values follow from one
 * declaration. Long options have one dash, as with `nomad` and `vault` (`-http-port 1`, `-http-port=1`); two dashes are accepted.
 * An invalid command line is a `UsageError` with a message of one line.
 */
import { nearestName } from '../../config/nearest-name.ts'
import { parseDurationMs } from '../../platform/duration.ts'
import { messageOf } from '../../platform/errors.ts'
import { parseBoolean, parseInteger } from '../../platform/schema.ts'

/** An invalid command line: exit code 2 unless the command defines another. The message is one line. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
  readonly exitCode: number

  constructor(message: string, options: ErrorOptions & { readonly exitCode?: number } = {}) {
    super(message, options)
    this.exitCode = options.exitCode ?? 2
  }
}

/** `-help` was given. */
export class HelpRequest extends Error {
  override readonly name = 'HelpRequest'
}

export interface Option<T> {
  /** Name of the value in the help text; undefined for a switch. */
  readonly placeholder: string | undefined
  /** At most ten words, no commas. */
  readonly help: string
  /** The value when the option is not given. */
  readonly initial: T
  /** The default as the help text shows it. */
  readonly shownDefault?: string
  /** Allowed values. */
  readonly choices?: readonly string[]
  readonly isRepeatable?: boolean
  /** The value after one more occurrence of the option. Throws an Error whose message completes `option -x: "text" …`. */
  take(text: string, soFar: T): T
}

export type Options = Readonly<Record<string, Option<unknown>>>
export type OptionValues<O extends Options> = { readonly [K in keyof O]: O[K] extends Option<infer T> ? T : never }

/** A switch; `-name=false` is accepted. */
export function flag(help: string): Option<boolean> {
  return {
    placeholder: undefined,
    help,
    initial: false,
    take(given) {
      const value = parseBoolean(given)
      if (value === undefined) throw new Error('must be true or false')
      return value
    },
  }
}

/** A switch that is undefined when it is not given. */
export function optionalFlag(help: string): Option<boolean | undefined> {
  const plain = flag(help)
  return { ...plain, initial: undefined, take: (given) => plain.take(given, false) }
}

interface TextOptionDefinition<D> {
  readonly placeholder: string
  readonly help: string
  readonly fallback: D
  readonly shownDefault?: string
  /** The fault of a value, or undefined. */
  readonly check?: (text: string) => string | undefined
}

/** One text; the last occurrence counts. */
export function text<D extends string | undefined>(options: TextOptionDefinition<D>): Option<string | D> {
  return {
    ...shown(
      options.placeholder,
      options.help,
      options.shownDefault ?? (options.fallback === '' ? undefined : options.fallback),
    ),
    initial: options.fallback,
    take(value) {
      if (value === '') throw new Error('must not be empty')
      const fault = options.check?.(value)
      if (fault !== undefined) throw new Error(fault)
      return value
    },
  }
}

/** A text that may be repeated; the values keep their order. */
export function texts(placeholder: string, help: string): Option<readonly string[]> {
  return {
    ...shown(placeholder, help, undefined),
    isRepeatable: true,
    initial: [],
    take(value, soFar) {
      if (value === '') throw new Error('must not be empty')
      return [...soFar, value]
    },
  }
}

interface IntegerOptionDefinition<D> {
  readonly placeholder: string
  readonly help: string
  readonly fallback: D
  readonly shownDefault?: string
  readonly min: number
  readonly max: number
}

export function integer<D extends number | undefined>(options: IntegerOptionDefinition<D>): Option<number | D> {
  const { min, max } = options
  return {
    ...shown(options.placeholder, options.help, options.shownDefault ?? options.fallback?.toString()),
    initial: options.fallback,
    take(value) {
      const number = parseInteger(value)
      if (typeof number === 'string' || number < min || number > max) {
        throw new Error(`must be a whole number from ${min} to ${max}`)
      }
      return number
    },
  }
}

/** A Go duration such as `30s`; the value is in milliseconds. */
export function duration(options: { help: string; fallback: string; minMs: number }): Option<number> {
  return {
    ...shown('DURATION', options.help, options.fallback),
    initial: parseDurationMs(options.fallback) ?? 0,
    take(value) {
      const parsedMs = parseDurationMs(value)
      if (parsedMs === undefined) throw new Error('must be a duration such as 30s, 1m30s or 500ms')
      if (parsedMs < options.minMs) throw new Error(`must be at least ${options.minMs} ms`)
      return parsedMs
    },
  }
}

interface ChoiceOptions<C extends string> {
  readonly placeholder: string
  readonly help: string
  readonly choices: readonly C[]
  readonly shownDefault?: string
}

/** One of several words, in any case. */
export function choice<const C extends string>(options: ChoiceOptions<C>): Option<C | undefined> {
  return {
    ...shown(options.placeholder, options.help, options.shownDefault),
    choices: options.choices,
    initial: undefined,
    take(value) {
      const found = options.choices.find((word) => word === value.toLowerCase())
      if (found === undefined) throw new Error(`must be one of ${options.choices.join(', ')}`)
      return found
    },
  }
}

/** An empty default is not shown: it means that the option is not set. */
function shown(placeholder: string, help: string, shownDefault: string | undefined) {
  return { placeholder, help, ...(shownDefault ? { shownDefault } : {}) }
}

export interface ParsedArguments<O extends Options> {
  readonly values: OptionValues<O>
  readonly operands: readonly string[]
}

/**
 * Parses `args`. With the order `anywhere`, options may follow operands; with `first`, the first operand ends the options, because
 * the operands are another program's command line. `--` always ends them. Throws UsageError, and HelpRequest for -h and -help.
 */
export function parseOptions<O extends Options>(
  options: O,
  args: readonly string[],
  order: 'anywhere' | 'first',
): ParsedArguments<O> {
  const values = new Map(Object.entries(options).map(([name, option]) => [name, option.initial]))
  const operands: string[] = []
  for (let at = 0; at < args.length; at++) {
    const arg = args[at] ?? ''
    if (arg === '--') {
      operands.push(...args.slice(at + 1))
      break
    }
    if (!looksLikeOption(arg)) {
      if (order === 'first') {
        operands.push(...args.slice(at))
        break
      }
      operands.push(arg)
      continue
    }
    const alias = formatAlias(options, arg, args[at + 1])
    if (alias) {
      values.set(alias.name, valueOf(alias.name, alias.option, alias.value, values.get(alias.name)))
      at += alias.extraArguments
      continue
    }
    const { name, inline } = splitOption(arg)
    const option = findOption(options, name)
    let value = inline
    if (value === undefined && option.placeholder !== undefined) value = valueAfter(options, name, option, args, ++at)
    values.set(name, valueOf(name, option, value ?? 'true', values.get(name)))
  }
  // Asserted: each value comes from the option of the same name.
  return { values: Object.fromEntries(values) as OptionValues<O>, operands }
}

interface FormatAlias {
  readonly name: string
  readonly option: Option<unknown>
  readonly value: string
  readonly extraArguments: number
}

/**
 * Every command with JSON output accepts both `-json` and `-format=json`: commands for hosts declare the first, as with Nomad,
 * commands for secrets the second, as with Vault. Undefined for any other argument.
 */
function formatAlias(options: Options, arg: string, next: string | undefined): FormatAlias | undefined {
  const { inline, name } = splitOption(arg)
  const { format, json } = options
  if (name === 'json' && !json && format?.choices?.includes('json')) {
    return inline === undefined ? { name: 'format', option: format, value: 'json', extraArguments: 0 } : undefined
  }
  if (name !== 'format' || format || json?.placeholder !== undefined || !json) return undefined
  const value = (inline ?? next)?.toLowerCase()
  if (value !== 'json' && value !== 'table') throw new UsageError('option -format: must be one of table, json')
  return { name: 'json', option: json, value: String(value === 'json'), extraArguments: inline === undefined ? 1 : 0 }
}

/** `-` alone is an operand: standard input. */
function looksLikeOption(arg: string): boolean {
  return arg.startsWith('-') && arg !== '-'
}

function splitOption(arg: string): { name: string; inline: string | undefined } {
  const body = arg.replace(/^--?/, '')
  const equals = body.indexOf('=')
  if (equals < 0) return { name: body, inline: undefined }
  return { name: body.slice(0, equals), inline: body.slice(equals + 1) }
}

function findOption(options: Options, name: string): Option<unknown> {
  const option = Object.hasOwn(options, name) ? options[name] : undefined
  if (option) return option
  if (name === 'h' || name === 'help') throw new HelpRequest('help')
  throw new UsageError(`unknown option ${JSON.stringify(`-${name}`)}${didYouMean(name, Object.keys(options), '-')}`)
}

function valueAfter(
  options: Options,
  name: string,
  option: Option<unknown>,
  args: readonly string[],
  at: number,
): string {
  const next = args[at]
  const isAnotherOption = next !== undefined && looksLikeOption(next) && Object.hasOwn(options, splitOption(next).name)
  if (next === undefined || next === '--' || isAnotherOption) {
    throw new UsageError(`missing value of option -${name}, usage: -${name} ${option.placeholder}`)
  }
  return next
}

function valueOf(name: string, option: Option<unknown>, value: string, soFar: unknown): unknown {
  try {
    return option.take(value, soFar)
  } catch (error) {
    throw new UsageError(`option -${name}: ${JSON.stringify(value)} ${messageOf(error)}`, { cause: error })
  }
}

/** `, did you mean X?` for the known word that `typed` begins or is nearest to, or an empty string. `prefix` precedes the word. */
export function didYouMean(typed: string, known: readonly string[], prefix = ''): string {
  const completed = typed.length >= 2 ? known.find((word) => word.startsWith(typed)) : undefined
  const suggestion = completed ?? nearestName(typed, known)
  return suggestion === undefined ? '' : `, did you mean ${prefix}${suggestion}?`
}
