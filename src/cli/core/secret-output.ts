/**
 * What the core answered, as a table for people, as JSON or YAML for programs, or one field of it, bare.
 *
 * A table has a header, columns four spaces apart and keys in order, as the field's tools print them, so that what picks
 * a line out of it goes on doing so. JSON is the answer as it came, numbers as they were written.
 */
import { shortDuration } from '../../platform/duration.ts'
import { type Answer, fieldsOf } from '../output/answer.ts'
import { CommandError, type CommandIo } from '../framework/command-shape.ts'
import { choice, text, UsageError } from '../framework/options.ts'
import { shownJson, shownText } from '../framework/shown.ts'
import type { CoreAnswer } from './core-access.ts'
import { isJsonObject } from '../output/exact-json.ts'
import { secretField } from '../output/field-names.ts'
import { yamlOf } from '../output/yaml.ts'

const FORMATS = ['table', 'json', 'yaml'] as const
export type Format = (typeof FORMATS)[number]

export const formatOption = {
  format: choice({ placeholder: 'FORMAT', help: 'How to print it (OUTPOST_FORMAT, VAULT_FORMAT)', choices: FORMATS }),
}

export const fieldOption = {
  field: text({ placeholder: 'NAME', help: 'Print this field only, as it is', fallback: undefined }),
}

/** Throws UsageError for a variable that names no format. */
export function formatOf(values: { readonly format: Format | undefined }, io: CommandIo): Format {
  if (values.format) return values.format
  const wanted = io.env['OUTPOST_FORMAT'] || io.env['VAULT_FORMAT'] || 'table'
  const found = FORMATS.find((format) => format === wanted.toLowerCase())
  if (found) return found
  throw new UsageError(`OUTPOST_FORMAT (or VAULT_FORMAT) must be one of ${FORMATS.join(', ')}`)
}

/** As JSON or YAML; `table` makes the table. */
export function printAs(format: Format, value: unknown, io: CommandIo, table: () => string): void {
  if (format === 'table') io.out(table())
  else io.out(shownJson(format === 'json' ? `${JSON.stringify(value, undefined, 2)}\n` : yamlOf(value)))
}

interface OutputValues {
  readonly format: Format | undefined
  readonly field?: string | undefined
}

/** The envelope with a secret, a token or what is wrapped. Throws CommandError when the field that is asked for is none. */
export function printSecret(answer: CoreAnswer, values: OutputValues, io: CommandIo): void {
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
 * The error for a field that the response lacks. A response that another request would not give again (it made a token, a lease
 * or a change) goes to stderr first, so that its content is not lost.
 */
function missingField({ body, fields, isRepeatable }: CoreAnswer, name: string, io: CommandIo): CommandError {
  if (body === undefined) {
    return new CommandError(`the request succeeded, but its response is empty and has no field ${JSON.stringify(name)}`)
  }
  const made =
    ['auth', 'wrap_info'].some((block) => isJsonObject(fields.value(block))) || fields.text('lease_id') !== ''
  const names = secretRows(fields).map(([row]) => row.replace(/:$/, ''))
  const shown = names.length === 0 ? 'it has none' : `it has ${names.map(shownText).join(', ')}`
  if (isRepeatable && !made) return new CommandError(`the answer has no field ${JSON.stringify(name)}, ${shown}`)
  io.err(shownJson(`${JSON.stringify(envelopeOf(body), undefined, 2)}\n`))
  return new CommandError(
    `the answer has no field ${JSON.stringify(name)}, ${shown}; the whole answer is above, because it is given only once`,
  )
}

/** What a write was answered with; `done` says what happened where that is nothing. */
export function printWritten(answer: CoreAnswer | undefined, done: string, values: OutputValues, io: CommandIo): void {
  const hasSecret = ['data', 'auth', 'wrap_info'].some((name) => isJsonObject(answer?.fields.value(name)))
  if (answer && (hasSecret || values.field !== undefined)) {
    printSecret(answer, values, io)
    return
  }
  if (formatOf(values, io) === 'table') io.out(`Success! ${done}\n`)
  if (answer) printWarnings(answer, io)
}

/** One value: a text as it is, with a newline only on a terminal; anything else as JSON. */
export function printField(name: string, value: unknown, format: Format, io: CommandIo): void {
  if (value === undefined) throw new CommandError(`the answer has no field ${JSON.stringify(name)}`)
  if (format !== 'table') {
    printAs(format, value, io, () => '')
    return
  }
  io.out(bare(typeof value === 'string' ? value : JSON.stringify(value)))
  if (isTerminal()) io.out('\n')
}

/** A text as it is; on a terminal without what that would obey. */
export function bare(value: string): string {
  return isTerminal() ? shownText(value) : value
}

function isTerminal(): boolean {
  return process.getBuiltinModule('node:tty').isatty(1)
}

/** What the server has to say besides, to stderr. */
export function printWarnings({ fields }: CoreAnswer, io: CommandIo): void {
  const warnings = fields.value('warnings')
  if (!Array.isArray(warnings)) return
  for (const warning of warnings) io.err(`warning: ${cell(warning).replaceAll('\n', ' ')}\n`)
}

/** The members that an envelope always has go, where there is nothing in them. */
function envelopeOf(body: unknown): unknown {
  if (!isJsonObject(body)) return body
  const { auth, data, lease_duration, lease_id, renewable, request_id, warnings, wrap_info } = body
  const always = { request_id, lease_id, lease_duration, renewable, data, warnings }
  return { ...always, ...(auth ? { auth } : {}), ...(wrap_info ? { wrap_info } : {}) }
}

type Rows = (readonly [string, unknown])[]

function secretRows(fields: Answer): Rows {
  const rows: Rows = []
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

/** Keys in order; what is a number of seconds by its name is shown as a duration. */
export function dataRows(data: Readonly<Record<string, unknown>>): Rows {
  const keys = Object.keys(data).toSorted()
  return keys.map((key) => {
    const value = data[key]
    return [key, typeof value === 'number' && isDuration(key) ? ttlText(value) : value]
  })
}

function isDuration(key: string): boolean {
  return /(?:^|_)(?:ttl|period|duration)$/.test(key)
}

function wrapRows(wrap: Answer): Rows {
  const rows: Rows = [
    ['wrapping_token:', wrap.text('token')],
    ['wrapping_accessor:', wrap.text('accessor')],
    ['wrapping_token_ttl:', ttlText(wrap.number('ttl'))],
    ['wrapping_token_creation_time:', wrap.text('creation_time')],
    ['wrapping_token_creation_path:', wrap.text('creation_path')],
  ]
  const wrapped = wrap.text('wrapped_accessor')
  return wrapped === '' ? rows : [...rows, ['wrapped_accessor:', wrapped]]
}

function authRows(auth: Answer): Rows {
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

/** `Key  Value` with a line below. */
export function pairsTable(rows: Rows): string {
  return wideTable(
    ['Key', 'Value'],
    rows.map(([key, value]) => [cell(key), cell(value)]),
  )
}

/** Columns four spaces apart below a header that is underlined; ends with a newline. */
export function wideTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [header, header.map((name) => '-'.repeat(name.length)), ...rows]
  const widths = header.map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)))
  return all
    .map(
      (row) =>
        `${row
          .map((shown, at) => shown.padEnd(widths[at] ?? 0))
          .join('    ')
          .trimEnd()}\n`,
    )
    .join('')
}

/** What a terminal would obey is shown as an escape; lines of a text stay lines. */
export function cell(value: unknown): string {
  return shownText(textOf(value))
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

/** One name a line, below `Keys`. */
export function keysTable(keys: readonly string[]): string {
  return wideTable(
    ['Keys'],
    keys.map((key) => [cell(key)]),
  )
}

/** The names of a list. */
export function keysOf(answer: CoreAnswer): string[] {
  const keys = fieldsOf(answer.body).under('data').value('keys')
  return Array.isArray(keys) ? keys.filter((key) => typeof key === 'string') : []
}
