/**
 * Options of the command line, declared as data: the parser, the help text and the types of the values all come from
 * the one declaration. Long options with one dash, as the field's tools have them (`-http-port 1`, `-http-port=1`);
 * two dashes are accepted too. A mistake is a `UsageError` whose one line says what to do.
 */
import { parseDurationMs } from '../../platform/duration.ts'
import { messageOf } from '../../platform/errors.ts'
import { parseBoolean, parseInteger } from '../../platform/schema.ts'
import { didYouMean } from './suggestion.ts'

/** The command line is wrong: exit code 2, unless the command says otherwise. The message is one line. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
  readonly exitCode: number

  constructor(message: string, options: ErrorOptions & { readonly exitCode?: number } = {}) {
    super(message, options)
    this.exitCode = options.exitCode ?? 2
  }
}

/** Not a mistake: somebody asked what the options are. */
export class HelpWanted extends Error {
  override readonly name = 'HelpWanted'
}

export interface Option<T> {
  /** What stands for the value in the help text; undefined for a switch, which takes none. */
  readonly placeholder: string | undefined
  readonly help: string
  /** The value when the option is not given. */
  readonly initial: T
  /** The default as the help text shows it, when there is one worth showing. */
  readonly shownDefault?: string
  /** The words that the value may be, when they are few. */
  readonly choices?: readonly string[]
  /** The value after one more occurrence of the option. Throws an Error that says what the text must be. */
  take(text: string, soFar: T): T
}

export type Options = Readonly<Record<string, Option<unknown>>>
export type ValuesOf<O extends Options> = { readonly [K in keyof O]: O[K] extends Option<infer T> ? T : never }

/** A switch: present or not; `-name=false` is accepted. */
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

/** A switch that is neither on nor off when it is not given. */
export function optionalFlag(help: string): Option<boolean | undefined> {
  const plain = flag(help)
  return { ...plain, initial: undefined, take: (given) => plain.take(given, false) }
}

interface TextOptions<D> {
  readonly placeholder: string
  readonly help: string
  readonly fallback: D
  readonly shownDefault?: string
  /** Says what is wrong with a value, or undefined. */
  readonly check?: (text: string) => string | undefined
}

/** One text; given twice, the last one counts. */
export function text<D extends string | undefined>(options: TextOptions<D>): Option<string | D> {
  return {
    ...shown(options.placeholder, options.help, options.shownDefault ?? options.fallback),
    initial: options.fallback,
    take(value) {
      if (value === '') throw new Error('must not be empty')
      const fault = options.check?.(value)
      if (fault !== undefined) throw new Error(fault)
      return value
    },
  }
}

/** A text that may be given any number of times; the values keep their order. */
export function texts(placeholder: string, help: string): Option<readonly string[]> {
  return {
    ...shown(placeholder, `${help} (repeatable)`, undefined),
    initial: [],
    take(value, soFar) {
      if (value === '') throw new Error('must not be empty')
      return [...soFar, value]
    },
  }
}

interface IntegerOptions<D> {
  readonly placeholder: string
  readonly help: string
  readonly fallback: D
  readonly min: number
  readonly max: number
}

export function integer<D extends number | undefined>(options: IntegerOptions<D>): Option<number | D> {
  const { min, max } = options
  return {
    ...shown(options.placeholder, options.help, options.fallback?.toString()),
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
}

/** One of a few words, in any case. */
export function choice<const C extends string>(options: ChoiceOptions<C>): Option<C | undefined> {
  return {
    ...shown(options.placeholder, `${options.help}: ${options.choices.join(', ')}`, undefined),
    choices: options.choices,
    initial: undefined,
    take(value) {
      const found = options.choices.find((word) => word === value.toLowerCase())
      if (found === undefined) throw new Error(`must be one of ${options.choices.join(', ')}`)
      return found
    },
  }
}

function shown(placeholder: string, help: string, shownDefault: string | undefined) {
  return { placeholder, help, ...(shownDefault === undefined ? {} : { shownDefault }) }
}

export interface Parsed<O extends Options> {
  readonly values: ValuesOf<O>
  readonly operands: readonly string[]
}

/**
 * Reads `args`. `order` says whether options may stand after operands (`anywhere`) or whether the first operand ends
 * them (`first`), as it must where the operands are another program's command line. `--` always ends them.
 * Throws UsageError, and HelpWanted for -h and -help.
 */
export function parseOptions<O extends Options>(
  options: O,
  args: readonly string[],
  order: 'anywhere' | 'first',
): Parsed<O> {
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
    const other = otherForm(options, arg, args[at + 1])
    if (other) {
      values.set(other.name, taken(other.name, other.option, other.value, values.get(other.name)))
      at += other.extra
      continue
    }
    const { name, inline } = splitOption(arg)
    const option = findOption(options, name)
    let value = inline
    if (value === undefined && option.placeholder !== undefined) value = valueAfter(options, name, option, args, ++at)
    values.set(name, taken(name, option, value ?? 'true', values.get(name)))
  }
  // The one place where the record's type is asserted: each value was taken by the option of the same name.
  return { values: Object.fromEntries(values) as ValuesOf<O>, operands }
}

interface OtherForm {
  readonly name: string
  readonly option: Option<unknown>
  readonly value: string
  /** Further arguments that it takes. */
  readonly extra: number
}

/**
 * Every command with JSON output accepts both `-json` and `-format=json`, whichever of the two it declares: the commands about
 * hosts have the first from Nomad, those about secrets the second from Vault. Undefined for any other argument.
 */
function otherForm(options: Options, arg: string, next: string | undefined): OtherForm | undefined {
  const { inline, name } = splitOption(arg)
  const { format, json } = options
  if (name === 'json' && !json && format?.choices?.includes('json')) {
    return inline === undefined ? { name: 'format', option: format, value: 'json', extra: 0 } : undefined
  }
  if (name !== 'format' || format || json?.placeholder !== undefined || !json) return undefined
  const value = (inline ?? next)?.toLowerCase()
  if (value !== 'json' && value !== 'table') throw new UsageError('option -format: must be one of table, json')
  return { name: 'json', option: json, value: String(value === 'json'), extra: inline === undefined ? 1 : 0 }
}

/** `-` alone is an operand (standard input, by custom), and so is anything that does not begin with a dash. */
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
  if (name === 'h' || name === 'help') throw new HelpWanted('help')
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
    throw new UsageError(`option -${name} needs a value, give it as -${name} ${option.placeholder}`)
  }
  return next
}

function taken(name: string, option: Option<unknown>, value: string, soFar: unknown): unknown {
  try {
    return option.take(value, soFar)
  } catch (error) {
    throw new UsageError(`option -${name}: ${JSON.stringify(value)} ${messageOf(error)}`, { cause: error })
  }
}
