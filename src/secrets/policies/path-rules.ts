/** Rules about paths of the secrets core: how they are read. Which of them decides about a request: `acl.ts`. */
import type { HclEntry, HclNode, TextPosition } from '../../config/hcl.ts'
import { parseKeyFilter } from './key-filter.ts'
import type { KeyFilter } from './key-filter.ts'
import { bracesPair } from './policy-template.ts'
import type { NamedRule, RuleReader } from './rule-reader.ts'

const CAPABILITIES = [
  'create',
  'read',
  'update',
  'patch',
  'delete',
  'list',
  'scan',
  'subscribe',
  'recover',
  'sudo',
  'deny',
] as const
export type PathCapability = (typeof CAPABILITIES)[number]

/** The older way to say it. `write` has never included `patch`. */
const SHORTHANDS: Readonly<Record<'deny' | 'read' | 'write' | 'sudo', readonly PathCapability[]>> = {
  deny: ['deny'],
  read: ['read', 'list'],
  write: ['create', 'read', 'update', 'delete', 'list'],
  sudo: ['create', 'read', 'update', 'delete', 'list', 'sudo'],
}

export type ParameterScalar = string | number | boolean
/** A list means a list with these members, and nothing else. */
export type ParameterValue = ParameterScalar | readonly ParameterScalar[]

/** Names of parameters in lower case, each with the values meant; an empty list means any value. */
export type Parameters = ReadonlyMap<string, readonly ParameterValue[]>

/** One `path` rule. What is absent was not given. */
export interface PathRule {
  /** Without a leading `/`. `+` stands for one whole segment; a `*` at the end for any rest. */
  readonly path: string
  readonly at: TextPosition
  /** Only `deny` when the rule denies. */
  readonly capabilities: ReadonlySet<PathCapability>
  /** As they are written. */
  readonly requiredParameters?: readonly string[]
  readonly allowedParameters?: Parameters
  readonly deniedParameters?: Parameters
  readonly minWrappingTtlMs?: number
  readonly maxWrappingTtlMs?: number
  readonly mfaMethods?: readonly string[]
  readonly paginationLimit?: number
  /** Which names of a list or scan the caller sees. */
  readonly keyFilter?: KeyFilter
  /** The rule counts only before this moment, in milliseconds since the Unix epoch. */
  readonly expiresAtMs?: number
}

type Draft = { -readonly [K in keyof PathRule]: PathRule[K] }

const KEYS = [
  'capabilities',
  'policy',
  'required_parameters',
  'allowed_parameters',
  'denied_parameters',
  'min_wrapping_ttl',
  'max_wrapping_ttl',
  'mfa_methods',
  'pagination_limit',
  'list_scan_response_keys_filter_path',
  'expiration',
  'comment',
]

export function readPathRule(entry: HclEntry, reader: RuleReader): PathRule[] {
  return reader.named(entry).map((rule) => pathRule(rule, reader))
}

function pathRule(rule: NamedRule, reader: RuleReader): PathRule {
  const capabilities = new Set<PathCapability>()
  const draft: Draft = { path: rule.name.replace(/^\//, ''), at: rule.at, capabilities }
  checkPattern(rule, reader)
  for (const entry of rule.entries) {
    if (entry.key === 'capabilities') {
      for (const each of reader.capabilities(entry, { kind: 'path', name: rule.name }, CAPABILITIES))
        capabilities.add(each)
    } else if (entry.key === 'policy') {
      const shorthand = reader.word(entry, 'path', ['deny', 'read', 'write', 'sudo'] as const)
      for (const each of shorthand ? SHORTHANDS[shorthand] : []) capabilities.add(each)
    } else {
      readRestriction(entry, draft, reader)
    }
  }
  if (capabilities.has('deny')) draft.capabilities = new Set<PathCapability>(['deny'])
  const { minWrappingTtlMs, maxWrappingTtlMs } = draft
  if (minWrappingTtlMs !== undefined && maxWrappingTtlMs !== undefined && minWrappingTtlMs > maxWrappingTtlMs) {
    reader.fault(rule.at, 'path: min_wrapping_ttl is longer than max_wrapping_ttl')
  }
  return draft
}

function checkPattern({ name, at }: NamedRule, reader: RuleReader): void {
  if (name.replace(/^\//, '') === '') reader.fault(at, 'path: the path is empty')
  if (name.includes('+*')) reader.fault(at, "path: '+*' is not allowed: end in '+' or in '*'")
  // Braces that do not pair would turn a template into a path that nobody asks for.
  if (!bracesPair(name)) reader.fault(at, 'path: `{{` and `}}` do not pair')
}

/** Everything that narrows the rule. A key that is not known is a fault: it may have been meant to narrow it, too. */
function readRestriction(entry: HclEntry, draft: Draft, reader: RuleReader): void {
  const names = () => reader.texts(entry, 'path').map((each) => each.text)
  if (entry.key === 'required_parameters') draft.requiredParameters = names()
  else if (entry.key === 'mfa_methods') draft.mfaMethods = names()
  else if (entry.key === 'allowed_parameters') draft.allowedParameters = readParameters(entry, reader)
  else if (entry.key === 'denied_parameters') draft.deniedParameters = readParameters(entry, reader)
  else if (entry.key === 'min_wrapping_ttl') setIfRead(draft, 'minWrappingTtlMs', reader.durationMs(entry, 'path'))
  else if (entry.key === 'max_wrapping_ttl') setIfRead(draft, 'maxWrappingTtlMs', reader.durationMs(entry, 'path'))
  else if (entry.key === 'pagination_limit') setIfRead(draft, 'paginationLimit', readLimit(entry, reader))
  else if (entry.key === 'expiration') setIfRead(draft, 'expiresAtMs', readMoment(entry, reader))
  else if (entry.key === 'list_scan_response_keys_filter_path') readKeyFilter(entry, draft, reader)
  else if (entry.key === 'comment') reader.text(entry)
  else reader.unknown(entry, 'path', KEYS)
}

function readKeyFilter(entry: HclEntry, draft: Draft, reader: RuleReader): void {
  const text = reader.text(entry)
  const filter = text === undefined ? undefined : parseKeyFilter(text)
  if (filter) draft.keyFilter = filter
  else if (text !== undefined) {
    reader.fault(entry.value.at, `path: ${entry.key} must be a template such as "{{ .path }}{{ .key }}"`)
  }
}

type NumberKey = 'minWrappingTtlMs' | 'maxWrappingTtlMs' | 'paginationLimit' | 'expiresAtMs'

function setIfRead(draft: Draft, key: NumberKey, value: number | undefined): void {
  if (value !== undefined) draft[key] = value
}

function readLimit({ key, value }: HclEntry, reader: RuleReader): number | undefined {
  if (value.kind === 'number' && Number.isInteger(value.value) && value.value >= 0) return value.value
  return reader.fault(value.at, `path: ${key} must be a whole number, not negative`)
}

const RFC3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/

function readMoment({ key, value }: HclEntry, reader: RuleReader): number | undefined {
  const ms = value.kind === 'string' && RFC3339.test(value.value) ? Date.parse(value.value) : Number.NaN
  if (!Number.isNaN(ms)) return ms
  return reader.fault(value.at, `path: ${key} must be a time such as "2027-01-31T12:00:00Z"`)
}

function readParameters(entry: HclEntry, reader: RuleReader): Parameters {
  const found = new Map<string, readonly ParameterValue[]>()
  for (const entries of reader.rule(entry)) {
    for (const { key, value } of entries) {
      if (value.kind !== 'list') reader.fault(value.at, `path: ${entry.key} must map names to lists of values`)
      else found.set(key.toLowerCase(), parameterValues(value.items, entry.key, reader))
    }
  }
  return found
}

function parameterValues(items: readonly HclNode[], key: string, reader: RuleReader): ParameterValue[] {
  return items.flatMap((item): ParameterValue[] => {
    if (item.kind === 'list') return [item.items.flatMap((each) => parameterScalar(each, key, reader))]
    return parameterScalar(item, key, reader)
  })
}

function parameterScalar(item: HclNode, key: string, reader: RuleReader): ParameterScalar[] {
  if (item.kind === 'string' || item.kind === 'number' || item.kind === 'boolean') return [item.value]
  return reader.fault(item.at, `path: ${key} may hold texts, numbers, true, false and lists of them`) ?? []
}
