/** Parses policy rules for paths of the secrets core. `acl.ts` decides which rule applies to a request. */
import type { HclEntry, HclNode, TextPosition } from '../../config/hcl.ts'
import { parseKeyFilter } from './key-filter.ts'
import type { KeyFilter } from './key-filter.ts'
import { hasBalancedBraces } from './policy-template.ts'
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

/** Capabilities of the old `policy` key. `write` does not include `patch`, as in Vault. */
const SHORTHANDS: Readonly<Record<'deny' | 'read' | 'write' | 'sudo', readonly PathCapability[]>> = {
  deny: ['deny'],
  read: ['read', 'list'],
  write: ['create', 'read', 'update', 'delete', 'list'],
  sudo: ['create', 'read', 'update', 'delete', 'list', 'sudo'],
}

export type ParameterScalar = string | number | boolean
/** A list stands for exactly this list. */
export type ParameterValue = ParameterScalar | readonly ParameterScalar[]

/** Names of parameters in lower case, with their values. An empty list stands for any value. */
export type Parameters = ReadonlyMap<string, readonly ParameterValue[]>

/** One `path` rule. */
export interface PathRule {
  /** Without a leading `/`. `+` stands for one segment, a trailing `*` for any rest. */
  readonly path: string
  readonly at: TextPosition
  /** Only `deny` if the rule denies. */
  readonly capabilities: ReadonlySet<PathCapability>
  /** As in the policy. */
  readonly requiredParameters?: readonly string[]
  readonly allowedParameters?: Parameters
  readonly deniedParameters?: Parameters
  readonly minWrappingTtlMs?: number
  readonly maxWrappingTtlMs?: number
  readonly mfaMethods?: readonly string[]
  readonly paginationLimit?: number
  /** Filter for the names of a list or scan. */
  readonly keyFilter?: KeyFilter
  /** Expiry of the rule. */
  readonly expiresAtMs?: number
}

type MutablePathRule = { -readonly [K in keyof PathRule]: PathRule[K] }

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
  const draft: MutablePathRule = { path: rule.name.replace(/^\//, ''), at: rule.at, capabilities }
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
  if (name.replace(/^\//, '') === '') reader.fault(at, 'path: empty path')
  if (name.includes('+*')) reader.fault(at, "path: '+*' is not allowed: end in '+' or in '*'")
  // With unbalanced braces a template would be a literal path that matches no request.
  if (!hasBalancedBraces(name)) reader.fault(at, 'path: unbalanced `{{` and `}}`')
}

/** Parses the restrictions of a rule. An unknown key is an error, because it could be a misspelled restriction. */
function readRestriction(entry: HclEntry, draft: MutablePathRule, reader: RuleReader): void {
  const names = () => reader.texts(entry, 'path').map((each) => each.text)
  if (entry.key === 'required_parameters') draft.requiredParameters = names()
  else if (entry.key === 'mfa_methods') draft.mfaMethods = names()
  else if (entry.key === 'allowed_parameters') draft.allowedParameters = readParameters(entry, reader)
  else if (entry.key === 'denied_parameters') draft.deniedParameters = readParameters(entry, reader)
  else if (entry.key === 'min_wrapping_ttl') setIfRead(draft, 'minWrappingTtlMs', reader.durationMs(entry, 'path'))
  else if (entry.key === 'max_wrapping_ttl') setIfRead(draft, 'maxWrappingTtlMs', reader.durationMs(entry, 'path'))
  else if (entry.key === 'pagination_limit') setIfRead(draft, 'paginationLimit', readLimit(entry, reader))
  else if (entry.key === 'expiration') setIfRead(draft, 'expiresAtMs', readTime(entry, reader))
  else if (entry.key === 'list_scan_response_keys_filter_path') readKeyFilter(entry, draft, reader)
  else if (entry.key === 'comment') reader.text(entry)
  else reader.unknown(entry, 'path', KEYS)
}

function readKeyFilter(entry: HclEntry, draft: MutablePathRule, reader: RuleReader): void {
  const text = reader.text(entry)
  const filter = text === undefined ? undefined : parseKeyFilter(text)
  if (filter) draft.keyFilter = filter
  else if (text !== undefined) {
    reader.fault(entry.value.at, `path: ${entry.key} must be a template such as "{{ .path }}{{ .key }}"`)
  }
}

type NumberKey = 'minWrappingTtlMs' | 'maxWrappingTtlMs' | 'paginationLimit' | 'expiresAtMs'

function setIfRead(draft: MutablePathRule, key: NumberKey, value: number | undefined): void {
  if (value !== undefined) draft[key] = value
}

function readLimit({ key, value }: HclEntry, reader: RuleReader): number | undefined {
  if (value.kind === 'number' && Number.isInteger(value.value) && value.value >= 0) return value.value
  return reader.fault(value.at, `path: ${key} must be a non-negative integer`)
}

const RFC3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/

function readTime({ key, value }: HclEntry, reader: RuleReader): number | undefined {
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
  return reader.fault(item.at, `path: ${key} can contain strings, numbers, booleans and lists of these`) ?? []
}
