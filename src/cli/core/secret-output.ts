/**
 * Output of responses of the secrets core: a table, JSON, YAML, or the value of one field.
 *
 * Tables have a header, columns four spaces apart and sorted keys, as `vault` prints them, so that scripts that parse them work. JSON
 * is the response with unchanged numbers.
 */
import { shortDuration } from '../../platform/duration.ts'
import { CommandError, type CommandIo } from '../framework/define-command.ts'
import { choice, text, UsageError } from '../framework/options.ts'
import { escapeJson, escapeText } from '../framework/terminal-escapes.ts'
import { secretField } from '../output/field-names.ts'
import { type JsonFields, fieldsOf, isJsonObject } from '../output/json.ts'
import type { CoreResponse } from './core-access.ts'

const FORMATS = ['table', 'json', 'yaml'] as const
export type Format = (typeof FORMATS)[number]

const FORMAT_DEFAULT = 'OUTPOST_FORMAT, else VAULT_FORMAT, else table'

export const formatOption = {
  format: choice({ placeholder: 'FORMAT', help: 'Output format', choices: FORMATS, shownDefault: FORMAT_DEFAULT }),
}

export const fieldOption = {
  field: text({ placeholder: 'NAME', help: 'Print the value of this field only', fallback: undefined }),
}

/** Throws UsageError for an unknown format in a variable. */
export function formatOf(values: { readonly format: Format | undefined }, io: CommandIo): Format {
  if (values.format) return values.format
  const name = io.env['OUTPOST_FORMAT'] || io.env['VAULT_FORMAT'] || 'table'
  const format = FORMATS.find((each) => each === name.toLowerCase())
  if (format) return format
  throw new UsageError(`OUTPOST_FORMAT (or VAULT_FORMAT) must be one of ${FORMATS.join(', ')}`)
}

/** Prints `value` as JSON or YAML, or the result of `table`. */
export function printAs(format: Format, value: unknown, io: CommandIo, table: () => string): void {
  if (format === 'table') io.out(table())
  else io.out(escapeJson(format === 'json' ? `${JSON.stringify(value, undefined, 2)}\n` : yamlOf(value)))
}

interface OutputOptions {
  readonly format: Format | undefined
  readonly field?: string | undefined
}

/** Prints a response with a secret, a token or a wrapping token. Throws CommandError if the requested field does not exist. */
export function printSecret(answer: CoreResponse, values: OutputOptions, io: CommandIo): void {
  const format = formatOf(values, io)
  if (values.field !== undefined) {
    const value = secretField(answer.fields, values.field)
    if (value === undefined) throw missingField(answer, values.field, io)
    printField(values.field, value, format, io)
    return
  }
  printAs(format, envelopeOf(answer.body), io, () => pairsTable(secretRows(answer.fields)))
  if (format === 'table') printWarnings(answer, io)
}

/**
 * The error for a missing field. A response that cannot be requested again (it created a token, a lease or a change) is printed to
 * stderr first, so that its content is not lost.
 */
function missingField({ body, fields, isRepeatable }: CoreResponse, name: string, io: CommandIo): CommandError {
  if (body === undefined) {
    return new CommandError(`the request succeeded, but the response is empty and has no field ${JSON.stringify(name)}`)
  }
  const hasCreated =
    ['auth', 'wrap_info'].some((block) => isJsonObject(fields.value(block))) || fields.text('lease_id') !== ''
  const names = secretRows(fields).map(([row]) => row.replace(/:$/, ''))
  const fieldList = names.length === 0 ? 'it has no fields' : `its fields are ${names.map(escapeText).join(', ')}`
  if (isRepeatable && !hasCreated)
    return new CommandError(`the response has no field ${JSON.stringify(name)}, ${fieldList}`)
  io.err(escapeJson(`${JSON.stringify(envelopeOf(body), undefined, 2)}\n`))
  return new CommandError(
    `the response has no field ${JSON.stringify(name)}, ${fieldList}; the response was printed above, because it cannot be requested again`,
  )
}

/** Prints the response to a write; `done` is printed for an empty response. */
export function printWriteResult(
  answer: CoreResponse | undefined,
  done: string,
  values: OutputOptions,
  io: CommandIo,
): void {
  const hasSecret = ['data', 'auth', 'wrap_info'].some((name) => isJsonObject(answer?.fields.value(name)))
  if (answer && (hasSecret || values.field !== undefined)) {
    printSecret(answer, values, io)
    return
  }
  if (formatOf(values, io) === 'table') io.out(`Success! ${done}\n`)
  if (answer) printWarnings(answer, io)
}

/** Prints a value: a string unchanged, with a newline only on a terminal; other values as JSON. */
export function printField(name: string, value: unknown, format: Format, io: CommandIo): void {
  if (value === undefined) throw new CommandError(`the response has no field ${JSON.stringify(name)}`)
  if (format !== 'table') {
    printAs(format, value, io, () => '')
    return
  }
  io.out(terminalSafe(typeof value === 'string' ? value : JSON.stringify(value)))
  if (isTerminal()) io.out('\n')
}

/** A text; on a terminal with escaped control characters. */
export function terminalSafe(value: string): string {
  return isTerminal() ? escapeText(value) : value
}

function isTerminal(): boolean {
  return process.getBuiltinModule('node:tty').isatty(1)
}

/** Prints the warnings of the server to stderr. */
export function printWarnings({ fields }: CoreResponse, io: CommandIo): void {
  const warnings = fields.value('warnings')
  if (!Array.isArray(warnings)) return
  for (const warning of warnings) io.err(`warning: ${cell(warning).replaceAll('\n', ' ')}\n`)
}

/** Omits empty optional members. */
function envelopeOf(body: unknown): unknown {
  if (!isJsonObject(body)) return body
  const { auth, data, lease_duration, lease_id, renewable, request_id, warnings, wrap_info } = body
  const always = { request_id, lease_id, lease_duration, renewable, data, warnings }
  return { ...always, ...(auth ? { auth } : {}), ...(wrap_info ? { wrap_info } : {}) }
}

type TableRows = (readonly [string, unknown])[]

function secretRows(fields: JsonFields): TableRows {
  const rows: TableRows = []
  const lease = fields.text('lease_id')
  if (lease !== '') {
    rows.push(['lease_id', lease], ['lease_duration', ttlText(fields.number('lease_duration'))])
    rows.push(['lease_renewable', fields.boolean('renewable')])
  } else if (fields.number('lease_duration') > 0) {
    rows.push(['refresh_interval', ttlText(fields.number('lease_duration'))])
  }
  if (isJsonObject(fields.value('wrap_info'))) rows.push(...wrapRows(fields.under('wrap_info')))
  if (isJsonObject(fields.value('auth'))) rows.push(...authRows(fields.under('auth')))
  const data = fields.value('data')
  if (isJsonObject(data)) rows.push(...dataRows(data))
  return rows
}

/** Sorted keys; a number of seconds, according to the key, is printed as a duration. */
export function dataRows(data: Readonly<Record<string, unknown>>): TableRows {
  const keys = Object.keys(data).toSorted()
  return keys.map((key) => {
    const value = data[key]
    return [key, typeof value === 'number' && isDuration(key) ? ttlText(value) : value]
  })
}

function isDuration(key: string): boolean {
  return /(?:^|_)(?:ttl|period|duration)$/.test(key)
}

function wrapRows(wrap: JsonFields): TableRows {
  const rows: TableRows = [
    ['wrapping_token:', wrap.text('token')],
    ['wrapping_accessor:', wrap.text('accessor')],
    ['wrapping_token_ttl:', ttlText(wrap.number('ttl'))],
    ['wrapping_token_creation_time:', wrap.text('creation_time')],
    ['wrapping_token_creation_path:', wrap.text('creation_path')],
  ]
  const wrapped = wrap.text('wrapped_accessor')
  return wrapped === '' ? rows : [...rows, ['wrapped_accessor:', wrapped]]
}

function authRows(auth: JsonFields): TableRows {
  const meta = auth.under('metadata')
  const seconds = auth.number('lease_duration')
  return [
    ['token', auth.text('client_token')],
    ['token_accessor', auth.text('accessor')],
    ['token_duration', seconds === 0 ? '∞' : ttlText(seconds)],
    ['token_renewable', auth.boolean('renewable')],
    ['token_policies', auth.value('token_policies') ?? []],
    ['identity_policies', auth.value('identity_policies') ?? []],
    ['policies', auth.value('policies') ?? []],
    ...auth
      .names('metadata')
      .toSorted()
      .map((name) => [`token_meta_${name}`, meta.value(name)] as const),
  ]
}

/** A table with the columns `Key` and `Value`. */
export function pairsTable(rows: TableRows): string {
  return wideTable(
    ['Key', 'Value'],
    rows.map(([key, value]) => [cell(key), cell(value)]),
  )
}

/** Columns four spaces apart below an underlined header; ends with a newline. */
export function wideTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [header, header.map((name) => '-'.repeat(name.length)), ...rows]
  const widths = header.map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)))
  return all
    .map(
      (row) =>
        `${row
          .map((value, at) => value.padEnd(widths[at] ?? 0))
          .join('    ')
          .trimEnd()}\n`,
    )
    .join('')
}

/** The text of a value with escaped control characters. */
export function cell(value: unknown): string {
  return escapeText(textOf(value))
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (value === undefined || value === null) return 'n/a'
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return `[${value.join(' ')}]`
  return JSON.stringify(value)
}

/** `768h`, `1h30m`, `45s`: whole seconds as a duration. */
export function ttlText(seconds: number): string {
  return shortDuration(Math.trunc(seconds) * 1000)
}

/** One name per line below `Keys`. */
export function keysTable(keys: readonly string[]): string {
  return wideTable(
    ['Keys'],
    keys.map((key) => [cell(key)]),
  )
}

/** Prints the names of a list; `none` is the table of an empty one. Undefined is the response for a path without names. */
export function printKeys(
  answer: CoreResponse | undefined,
  values: OutputOptions,
  io: CommandIo,
  none = keysTable([]),
): void {
  const keys = answer ? keysOf(answer) : []
  printAs(formatOf(values, io), keys, io, () => (keys.length === 0 ? none : keysTable(keys)))
}

/** The names of a list. */
export function keysOf(answer: CoreResponse): string[] {
  const keys = fieldsOf(answer.body).under('data').value('keys')
  return Array.isArray(keys) ? keys.filter((key) => typeof key === 'string') : []
}

/** Words that YAML parsers may not read as strings. */
const YAML_KEYWORD = /^(?:null|true|false|yes|no|on|off|y|n)$/i
const YAML_PLAIN = /^[A-Za-z_][\w./-]*$/

/** YAML in which ambiguous strings are quoted; ends with a newline. */
export function yamlOf(value: unknown): string {
  return `${yamlLines(value).join('\n')}\n`
}

function yamlLines(value: unknown): string[] {
  if (Array.isArray(value)) {
    if (value.length === 0) return ['[]']
    return value.flatMap((item) => yamlLines(item).map((line, at) => (at === 0 ? `- ${line}` : `  ${line}`)))
  }
  if (!isJsonObject(value)) return [yamlScalar(value)]
  const members = Object.entries(value).filter(([, member]) => member !== undefined)
  return members.length === 0 ? ['{}'] : members.flatMap(([key, member]) => yamlMember(yamlScalar(key), member))
}

function yamlMember(key: string, value: unknown): string[] {
  const inner = yamlLines(value)
  if (Array.isArray(value) && value.length > 0) return [`${key}:`, ...inner]
  if (isJsonObject(value) && inner[0] !== '{}') return [`${key}:`, ...inner.map((line) => `  ${line}`)]
  return [`${key}: ${inner[0]}`]
}

function yamlScalar(value: unknown): string {
  if (typeof value !== 'string') return value === undefined ? 'null' : JSON.stringify(value)
  return YAML_PLAIN.test(value) && !YAML_KEYWORD.test(value) ? value : JSON.stringify(value)
}
