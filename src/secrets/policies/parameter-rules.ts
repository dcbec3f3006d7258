/**
 * Parameter rules of a path rule: required parameters, and allowed and denied values.
 *
 * Names are compared in lower case. Values are compared as strings, because fields are weakly typed: a query has no numbers, and a field
 * accepts `"5"` and `5`. Values are case-sensitive, except names that an engine folds: a field with a fold
 * (`engines/framework/fields.ts`) is compared in its canonical form, and so are names of policies and entity aliases at every path. A
 * string in a rule may begin or end with the wildcard `*`.
 *
 * Allowed values are matched strictly, denied values widely. A list is allowed if each member is, or if the rule has this very list. A
 * string with commas, which a field may split into a list, is allowed by a `*` only if each part is. A list or a string with commas is
 * denied if one member is. All spellings of a denied number, boolean or duration (`1h`, `3600`) are denied. If the path declares the
 * field, a value is also denied if the field parses it to the same value as the denied one (`"true"`, `T`), and a rule about a field
 * applies to its aliases (`EngineField.aliasOf`). Only a field that stores a string and interprets it later can accept another spelling of a
 * denied value.
 */
import { type EngineField, FieldError, type EngineFields, secondsOf } from '../../engines/framework/fields.ts'
import { foldName, type NameFold } from '../../engines/framework/name-fold.ts'
import type { Parameters, ParameterScalar, ParameterValue } from './path-rules.ts'

/** The body of a request, or its query if it has no body. */
export type RequestData = Readonly<Record<string, unknown>>

export interface ParameterRules {
  readonly required: readonly string[]
  readonly allowed: Parameters | undefined
  readonly denied: Parameters | undefined
}

export type ParameterFault = 'parameter missing' | 'parameter denied' | 'parameter not allowed'

/** The first parameter that violates the rules; undefined if none does. `fields` are those of the path, if known. */
export function findParameterFault(
  rules: ParameterRules,
  data: RequestData,
  fields: EngineFields = {},
): { reason: ParameterFault; name: string } | undefined {
  const missing = rules.required.find((name) => !has(data, name))
  if (missing !== undefined) return { reason: 'parameter missing', name: missing }
  const { denied, allowed } = rules
  for (const [given, value] of Object.entries(data)) {
    const name = given.toLowerCase()
    if (denied?.size && namesOf(name, fields).some((each) => isDenied(denied, each, value, fields)))
      return { reason: 'parameter denied', name: given }
  }
  for (const [given, value] of Object.entries(data)) {
    const name = given.toLowerCase()
    if (allowed?.size && !isAllowed(allowed, name, value, fields))
      return { reason: 'parameter not allowed', name: given }
  }
  return undefined
}

/** Required names match as in the rule or in lower case: the engine ignores another spelling. */
function has(data: RequestData, name: string): boolean {
  return Object.hasOwn(data, name) || Object.hasOwn(data, name.toLowerCase())
}

/** Folds of parameters that have the same meaning at every path. */
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

/** `name`, followed by the aliases of the field. */
function namesOf(name: string, fields: EngineFields): readonly string[] {
  let aliases = aliasesByFields.get(fields)
  if (!aliases) aliasesByFields.set(fields, (aliases = aliasesIn(fields)))
  return aliases.get(name) ?? [name]
}

const aliasesByFields = new WeakMap<EngineFields, ReadonlyMap<string, readonly string[]>>()

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
  const [given, named] = fold
    ? [foldValue(value, fold), values.map((each) => foldNamedValue(each, fold))]
    : [value, values]
  if (named.some((each) => mayEqual(given, each))) return true
  const field = Object.hasOwn(fields, name) ? fields[name] : undefined
  return field !== undefined && parsesAsOneOf(field, value, values)
}

/** Whether the field parses the value, or a member of it, to the same value as one in the rule. */
function parsesAsOneOf(field: EngineField<unknown>, value: unknown, values: readonly ParameterValue[]): boolean {
  const members = parseScalars(field, value)
  // Strings were compared before.
  if (members.length > LIST_LENGTH_MAX) return true
  if (!members.some((each) => typeof each !== 'string')) return false
  return values.some((each) => parseScalars(field, each).some((named) => members.includes(named)))
}

/** The numbers, booleans and strings to which a field parses a value; empty for an invalid value and for objects. */
function parseScalars(field: EngineField<unknown>, value: unknown): readonly unknown[] {
  try {
    const read = field.read(value)
    return (Array.isArray(read) ? read : [read]).filter((each) => typeof each !== 'object' && each !== undefined)
  } catch (error) {
    if (error instanceof FieldError) return []
    throw error
  }
}

function isAllowed(allowed: Parameters, name: string, value: unknown, fields: EngineFields): boolean {
  const values = allowed.get(name) ?? allowedByWildcard(allowed, name, fields)
  if (values === undefined || values.length === 0) return values !== undefined
  const fold = foldOf(name, fields)
  const [given, named] = fold
    ? [foldValue(value, fold), values.map((each) => foldNamedValue(each, fold))]
    : [value, values]
  if (named.some((each) => equalsNamed(given, each))) return true
  if (!Array.isArray(given) || given.length === 0 || given.length > LIST_LENGTH_MAX) return false
  return given.every((member) => named.some((each) => equalsNamed(member, each)))
}

/** The values of `*`, unless the rule lists values for an alias of the field. */
function allowedByWildcard(
  allowed: Parameters,
  name: string,
  fields: EngineFields,
): readonly ParameterValue[] | undefined {
  const any = allowed.get('*')
  if (any === undefined) return undefined
  const listed = namesOf(name, fields).find((each) => allowed.has(each))
  return listed === undefined ? any : allowed.get(listed)
}

/** Folds each part of a string with commas, because a field may split it into a list. */
function foldValue(value: unknown, fold: NameFold): unknown {
  if (Array.isArray(value)) return value.map((each) => (typeof each === 'string' ? foldValue(each, fold) : each))
  if (typeof value !== 'string') return value
  if (value.length > TEXT_LENGTH_MAX) return foldName(value, fold)
  return value
    .split(',')
    .map((part) => foldName(part, fold))
    .join(',')
}

function foldNamedValue(named: ParameterValue, fold: NameFold): ParameterValue {
  if (typeof named === 'string') return foldName(named, fold)
  return isList(named) ? named.map((each) => (typeof each === 'string' ? foldName(each, fold) : each)) : named
}

function isList(named: ParameterValue): named is readonly ParameterScalar[] {
  return Array.isArray(named)
}

/** Whether the value equals one in the rule. */
function equalsNamed(value: unknown, named: ParameterValue): boolean {
  if (isList(named)) {
    if (!Array.isArray(value) || value.length !== named.length) return false
    return named.every((each, at) => textOf(value[at]) === String(each))
  }
  const text = textOf(value)
  if (text === undefined) return false
  if (typeof named !== 'string') return text === String(named)
  if (text === named || !text.includes(',')) return matchesText(named, text)
  if (!named.startsWith('*') && !named.endsWith('*')) return false
  return text.length <= TEXT_LENGTH_MAX && text.split(',').every((part) => matchesText(named, part.trim()))
}

/** Longer strings with commas and longer lists are not searched: they are not allowed by members, and denied as a whole. */
const TEXT_LENGTH_MAX = 65_536
const LIST_LENGTH_MAX = 10_000

/** Whether some field could parse the value to the one in the rule. */
function mayEqual(value: unknown, named: ParameterValue): boolean {
  // A list with more members contains the denied list, too.
  if (isList(named)) return named.length > 0 ? named.every((each) => mayEqual(value, each)) : isEmptyList(value)
  if (Array.isArray(value)) return value.length > LIST_LENGTH_MAX || value.some((each) => scalarMayEqual(each, named))
  // A field parses null to its empty value.
  return scalarMayEqual(value === null ? '' : value, named)
}

function scalarMayEqual(value: unknown, named: ParameterScalar): boolean {
  // A field of strings parses true to `1`.
  if (typeof value === 'boolean' && textMayEqual(value ? '1' : '0', named)) return true
  return textMayEqual(textOf(value), named)
}

function isEmptyList(value: unknown): boolean {
  return value === null || value === '' || (Array.isArray(value) && value.length === 0)
}

function textMayEqual(text: string | undefined, named: ParameterScalar): boolean {
  if (text === undefined) return false
  if (spells(text, named)) return true
  if (!text.includes(',')) return false
  return text.length > TEXT_LENGTH_MAX || text.split(',').some((each) => spells(each, named))
}

function spells(text: string, named: ParameterScalar): boolean {
  const trimmed = text.trim()
  if (typeof named === 'string')
    return matchesText(named, text) || matchesText(named, trimmed) || isSameDuration(named, trimmed)
  const number = Number(trimmed)
  if (typeof named === 'number') return number === named
  // NaN is neither true nor false.
  if (named) return TRUE_TEXTS.has(trimmed.toLowerCase()) || Math.abs(number) > 0
  return FALSE_TEXTS.has(trimmed.toLowerCase()) || number === 0
}

const DURATION = /^[+-]?[\d.]+(?:[a-zµ][\da-zµ.]*)?$/

/** Whether two strings, of which one has a unit, are the same duration. Many fields store a duration as a string. */
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

/** Spellings of booleans in weakly typed fields, besides numbers. */
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

/** Merges two rules for one path: names and values of both. An empty list, which means any value, overrides others. */
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
