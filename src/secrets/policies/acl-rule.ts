/** One path of an ACL: the merged rules of all policies of a caller for it. */
import type { TextPosition } from '../../config/hcl.ts'
import type { KeyFilter } from './key-filter.ts'
import { uniteParameters } from './parameter-rules.ts'
import type { ParameterRules } from './parameter-rules.ts'
import { compilePattern } from './path-pattern.ts'
import type { PathPattern } from './path-pattern.ts'
import type { PathCapability, PathRule } from './path-rules.ts'

/** Position of a rule. */
export interface RuleOrigin {
  readonly policy: string
  /** As in the policy, without a leading slash. */
  readonly path: string
  readonly at: TextPosition
}

export interface AclRule {
  readonly pattern: PathPattern
  /** Only `deny` if one of the rules denies. */
  readonly capabilities: ReadonlySet<PathCapability>
  readonly parameters: ParameterRules
  /** 0 for no limit. */
  readonly minWrapSeconds: number
  readonly maxWrapSeconds: number
  readonly mfaMethods: readonly string[]
  /** 0 for no limit. */
  readonly paginationLimit: number
  /** A name must pass all filters. */
  readonly keyFilters: readonly KeyFilter[]
  readonly sources: readonly (RuleOrigin & { readonly capabilities: ReadonlySet<PathCapability> })[]
}

const NOTHING: readonly never[] = []

/** The rule of one policy. `path` has its templates filled in. */
export function ruleOf(rule: PathRule, path: string, policy: string): AclRule {
  return {
    pattern: compilePattern(path),
    capabilities: rule.capabilities,
    parameters: {
      required: rule.requiredParameters ?? NOTHING,
      allowed: rule.allowedParameters,
      denied: rule.deniedParameters,
    },
    minWrapSeconds: (rule.minWrappingTtlMs ?? 0) / 1000,
    maxWrapSeconds: (rule.maxWrappingTtlMs ?? 0) / 1000,
    mfaMethods: rule.mfaMethods ?? NOTHING,
    paginationLimit: rule.paginationLimit ?? 0,
    keyFilters: rule.keyFilter ? [rule.keyFilter] : NOTHING,
    sources: [{ policy, path: rule.path, at: rule.at, capabilities: rule.capabilities }],
  }
}

/** Merges two rules for the same path. */
export function unite(a: AclRule, b: AclRule): AclRule {
  const denied = a.capabilities.has('deny') || b.capabilities.has('deny')
  return {
    pattern: a.pattern,
    capabilities: denied ? new Set<PathCapability>(['deny']) : new Set([...a.capabilities, ...b.capabilities]),
    parameters: {
      required: [...new Set([...a.parameters.required, ...b.parameters.required])],
      allowed: uniteParameters(a.parameters.allowed, b.parameters.allowed),
      denied: uniteParameters(a.parameters.denied, b.parameters.denied),
    },
    minWrapSeconds: smallerBound(a.minWrapSeconds, b.minWrapSeconds),
    maxWrapSeconds: smallerBound(a.maxWrapSeconds, b.maxWrapSeconds),
    mfaMethods: [...new Set([...a.mfaMethods, ...b.mfaMethods])],
    paginationLimit: smallerBound(a.paginationLimit, b.paginationLimit),
    keyFilters: [...a.keyFilters, ...b.keyFilters],
    sources: [...a.sources, ...b.sources],
  }
}

/** The smaller of two limits, of which 0 means none. */
function smallerBound(a: number, b: number): number {
  return a === 0 || b === 0 ? a + b : Math.min(a, b)
}

/** Whether a rule restricts what other rules grant. */
export function restricts(rule: PathRule): boolean {
  return (
    rule.capabilities.has('deny') ||
    rule.capabilities.size === 0 ||
    [rule.mfaMethods?.length, rule.requiredParameters?.length, rule.minWrappingTtlMs, rule.maxWrappingTtlMs].some(
      Boolean,
    ) ||
    [rule.allowedParameters?.size, rule.deniedParameters?.size, rule.paginationLimit, rule.keyFilter].some(Boolean)
  )
}

/** The barrier of a restricting rule whose template has no valid value: denies every path that the rule could match. */
export function barrierOf(rule: PathRule, policy: string): AclRule {
  const head = rule.path.slice(0, rule.path.indexOf('{{'))
  const capabilities: ReadonlySet<PathCapability> = new Set<PathCapability>(['deny'])
  const { at, path } = rule
  return ruleOf({ path, at, capabilities }, `${head}*`, policy)
}
