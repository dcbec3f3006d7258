/**
 * What a path rule says about the parameters of a request: which must be there, which may, and with which values.
 *
 * Names are compared in lower case. Values are compared as texts, because the fields behind them are weakly typed: a
 * query knows no numbers, and `"5"` and `5` mean the same to a field. Case counts in them, but for names that an engine
 * folds: a field that declares a fold (`engines/framework/fields.ts`) is compared in its canonical form, and so are the names of
 * policies and entity aliases at every path. A text of the rule may begin or end with `*` for any beginning or end.
 *
 * Granting is read narrowly and denying widely. A list is allowed when each of its members is, or when the rule names this
 * very list; a text with commas, which a field may take for a list, is allowed by a `*` only when each part is. A list or
 * a text with commas is denied when one of its members is; a denied number or boolean is found in each of its spellings.
 * So is a denied duration (`1h` and `3600`). Where the path declares the field, a value is also denied when the field reads
 * it as it reads the denied value (`"true"` and `T`), and a rule about a field holds for its older names (`EngineField.aliasOf`).
 * Only a field that keeps a text and interprets it later can take another spelling of a denied value.
 */
import { type EngineField, FieldError, type EngineFields, secondsOf } from '../../engines/framework/fields.ts'
import { foldName, type NameFold } from '../../engines/framework/name-fold.ts'
import type { Parameters, ParameterScalar, ParameterValue } from './path-rules.ts'

/** The names and values of a request: its body, or its query where it has no body. */
export type RequestData = Readonly<Record<string, unknown>>

export interface ParameterRules {
  readonly required: readonly string[]
  readonly allowed: Parameters | undefined
  readonly denied: Parameters | undefined
}

export type ParameterFault = 'parameter missing' | 'parameter denied' | 'parameter not allowed'

/**
 * What the rules object to, and the name of the parameter; undefined when they do not. `fields` are those of the path,
 * where they are known.
 */
export function objection(
  rules: ParameterRules,
  data: RequestData,
  fields: EngineFields = {},
): { why: ParameterFault; name: string } | undefined {
  const missing = rules.required.find((name) => !has(data, name))
  if (missing !== undefined) return { why: 'parameter missing', name: missing }
  const { denied, allowed } = rules
  for (const [given, value] of Object.entries(data)) {
    const name = given.toLowerCase()
    if (denied?.size && namesOf(name, fields).some((each) => isDenied(denied, each, value, fields)))
      return { why: 'parameter denied', name: given }
  }
  for (const [given, value] of Object.entries(data)) {
    const name = given.toLowerCase()
    if (allowed?.size && !isAllowed(allowed, name, value, fields)) return { why: 'parameter not allowed', name: given }
  }
  return undefined
}

/** A name counts as it is written in the rule or in lower case: another spelling is not the field that was meant. */
function has(data: RequestData, name: string): boolean {
  return Object.hasOwn(data, name) || Object.hasOwn(data, name.toLowerCase())
}

/** Parameters that name the same kind of thing at every path. */
const FOLDS: ReadonlyMap<string, NameFold> = new Map<string, NameFold>([
  ['policies', 'case and spaces'],
  ['token_policies', 'case and spaces'],
  ['allowed_policies', 'case and spaces'],
  ['allowed_policies_glob', 'case and spaces'],
  ['disallowed_policies', 'case and spaces'],
  ['disallowed_policies_glob', 'case and spaces'],
  ['entity_alias', 'case'],
  ['allowed_entity_aliases', 'case and spaces'],
])

function foldOf(name: string, fields: EngineFields): NameFold | undefined {
  return (Object.hasOwn(fields, name) ? fields[name]?.fold : undefined) ?? FOLDS.get(name)
}

/** The field and the older names of it, beginning with `name`. */
function namesOf(name: string, fields: EngineFields): readonly string[] {
  let aliases = known.get(fields)
  if (!aliases) known.set(fields, (aliases = aliasesIn(fields)))
  return aliases.get(name) ?? [name]
}

const known = new WeakMap<EngineFields, ReadonlyMap<string, readonly string[]>>()

function aliasesIn(fields: EngineFields): Map<string, readonly string[]> {
  const aliases = new Map<string, readonly string[]>()
  for (const [name, { aliasOf }] of Object.entries(fields)) {
    if (aliasOf === undefined) continue
    aliases.set(name, [name, aliasOf])
    aliases.set(aliasOf, [...(aliases.get(aliasOf) ?? [aliasOf]), name])
  }
  return aliases
}

function isDenied(denied: Parameters, name: string, value: unknown, fields: EngineFields): boolean {
  if (denied.has('*')) return true
  const values = denied.get(name)
  if (values === undefined || values.length === 0) return values !== undefined
  const fold = foldOf(name, fields)
  const [given, named] = fold ? [folded(value, fold), values.map((each) => foldedRule(each, fold))] : [value, values]
  if (named.some((each) => mayMean(given, each))) return true
  const field = Object.hasOwn(fields, name) ? fields[name] : undefined
  return field !== undefined && isReadAsOneOf(field, value, values)
}

/** Whether the field reads the value, or a member of it, as it reads one of those that the rule names. */
function isReadAsOneOf(field: EngineField<unknown>, value: unknown, values: readonly ParameterValue[]): boolean {
  const members = scalarsRead(field, value)
  // Texts are compared as they are.
  if (members.length > LIST_MAX) return true
  if (!members.some((each) => typeof each !== 'string')) return false
  return values.some((each) => scalarsRead(field, each).some((named) => members.includes(named)))
}

/** The numbers, booleans and texts that a field reads; empty for a value that it refuses or that is an object to it. */
function scalarsRead(field: EngineField<unknown>, value: unknown): readonly unknown[] {
  try {
    const read = field.read(value)
    return (Array.isArray(read) ? read : [read]).filter((each) => typeof each !== 'object' && each !== undefined)
  } catch (error) {
    if (error instanceof FieldError) return []
    throw error
  }
}

function isAllowed(allowed: Parameters, name: string, value: unknown, fields: EngineFields): boolean {
  const values = allowed.get(name) ?? allowedBeside(allowed, name, fields)
  if (values === undefined || values.length === 0) return values !== undefined
  const fold = foldOf(name, fields)
  const [given, named] = fold ? [folded(value, fold), values.map((each) => foldedRule(each, fold))] : [value, values]
  if (named.some((each) => means(given, each))) return true
  if (!Array.isArray(given) || given.length === 0 || given.length > LIST_MAX) return false
  return given.every((member) => named.some((each) => means(member, each)))
}

/** The values of `*`, but for another name of a field whose values the rule lists. */
function allowedBeside(allowed: Parameters, name: string, fields: EngineFields): readonly ParameterValue[] | undefined {
  const any = allowed.get('*')
  if (any === undefined) return undefined
  const listed = namesOf(name, fields).find((each) => allowed.has(each))
  return listed === undefined ? any : allowed.get(listed)
}

/** Each part of a text with commas, because a field may take it for a list. */
function folded(value: unknown, fold: NameFold): unknown {
  if (Array.isArray(value)) return value.map((each) => (typeof each === 'string' ? folded(each, fold) : each))
  if (typeof value !== 'string') return value
  if (value.length > TEXT_MAX) return foldName(value, fold)
  return value
    .split(',')
    .map((part) => foldName(part, fold))
    .join(',')
}

function foldedRule(named: ParameterValue, fold: NameFold): ParameterValue {
  if (typeof named === 'string') return foldName(named, fold)
  return isList(named) ? named.map((each) => (typeof each === 'string' ? foldName(each, fold) : each)) : named
}

function isList(named: ParameterValue): named is readonly ParameterScalar[] {
  return Array.isArray(named)
}

/** Whether the value is what the rule names. */
function means(value: unknown, named: ParameterValue): boolean {
  if (isList(named)) {
    if (!Array.isArray(value) || value.length !== named.length) return false
    return named.every((each, at) => textOf(value[at]) === String(each))
  }
  const text = textOf(value)
  if (text === undefined) return false
  if (typeof named !== 'string') return text === String(named)
  if (text === named || !text.includes(',')) return matchesText(named, text)
  if (!named.startsWith('*') && !named.endsWith('*')) return false
  return text.length <= TEXT_MAX && text.split(',').every((part) => matchesText(named, part.trim()))
}

/** Longer texts with commas and longer lists are not looked through: where values are denied, they are denied whole. */
const TEXT_MAX = 65_536
const LIST_MAX = 10_000

/** Whether some field could take the value for what the rule names. */
function mayMean(value: unknown, named: ParameterValue): boolean {
  // With more members than the list that is denied it would still bring all of that.
  if (isList(named)) return named.length > 0 ? named.every((each) => mayMean(value, each)) : isEmptyList(value)
  if (Array.isArray(value)) return value.length > LIST_MAX || value.some((each) => scalarMayMean(each, named))
  // A field takes null for its empty value.
  return scalarMayMean(value === null ? '' : value, named)
}

function scalarMayMean(value: unknown, named: ParameterScalar): boolean {
  // A field of texts takes true for 1.
  if (typeof value === 'boolean' && textMayMean(value ? '1' : '0', named)) return true
  return textMayMean(textOf(value), named)
}

function isEmptyList(value: unknown): boolean {
  return value === null || value === '' || (Array.isArray(value) && value.length === 0)
}

function textMayMean(text: string | undefined, named: ParameterScalar): boolean {
  if (text === undefined) return false
  if (spells(text, named)) return true
  if (!text.includes(',')) return false
  return text.length > TEXT_MAX || text.split(',').some((each) => spells(each, named))
}

function spells(text: string, named: ParameterScalar): boolean {
  const trimmed = text.trim()
  if (typeof named === 'string')
    return matchesText(named, text) || matchesText(named, trimmed) || isSameDuration(named, trimmed)
  const number = Number(trimmed)
  if (typeof named === 'number') return number === named
  // NaN is no number of anybody's, and neither true nor false.
  if (named) return TRUE_TEXTS.has(trimmed.toLowerCase()) || Math.abs(number) > 0
  return FALSE_TEXTS.has(trimmed.toLowerCase()) || number === 0
}

const DURATION = /^[+-]?[\d.]+(?:[a-zµ][\da-zµ.]*)?$/

/** Two spellings of one duration, of which one has a unit. Many fields keep a duration as its text. */
function isSameDuration(named: string, text: string): boolean {
  if (!DURATION.test(named) || !DURATION.test(text) || !/[a-zµ]/.test(named + text)) return false
  const seconds = durationOf(named)
  return seconds !== undefined && seconds === durationOf(text)
}

function durationOf(text: string): number | undefined {
  try {
    return secondsOf(text)
  } catch (error) {
    if (error instanceof FieldError) return undefined
    throw error
  }
}

/** What weakly typed fields take for a boolean, beside numbers. */
const TRUE_TEXTS: ReadonlySet<string> = new Set(['t', 'true'])
const FALSE_TEXTS: ReadonlySet<string> = new Set(['f', 'false'])

function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  return typeof value === 'number' || typeof value === 'boolean' || typeof value === 'bigint'
    ? String(value)
    : undefined
}

function matchesText(pattern: string, text: string): boolean {
  if (pattern === '*') return true
  const [starts, ends] = [pattern.startsWith('*'), pattern.endsWith('*')]
  if (starts && ends) return text.includes(pattern.slice(1, -1))
  if (starts) return text.endsWith(pattern.slice(1))
  return ends ? text.startsWith(pattern.slice(0, -1)) : text === pattern
}

/** Two rules for one path: the names of both; values are united, and an empty list, which means any, wins. */
export function uniteParameters(a: Parameters | undefined, b: Parameters | undefined): Parameters | undefined {
  if (!a || !b) return a ?? b
  const united = new Map(a)
  for (const [name, values] of b) {
    const others = united.get(name)
    const any = values.length === 0 || others?.length === 0
    united.set(name, any ? [] : [...(others ?? []), ...values])
  }
  return united
}
