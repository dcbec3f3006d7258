/** One path of an ACL: what all policies of a caller say about it, united. */
import type { TextPosition } from '../../config/hcl.ts'
import type { KeyFilter } from './key-filter.ts'
import { uniteParameters } from './parameter-rules.ts'
import type { ParameterRules } from './parameter-rules.ts'
import { compilePattern } from './path-pattern.ts'
import type { PathPattern } from './path-pattern.ts'
import type { PathCapability, PathRule } from './path-rules.ts'

/** Where a rule stands. */
export interface RuleOrigin {
  readonly policy: string
  /** As the policy writes it, without a leading slash. */
  readonly path: string
  readonly at: TextPosition
}

/** One path of an ACL with everything that its policies say about it. */
export interface AclRule {
  readonly pattern: PathPattern
  /** Only `deny` when one of them denies. */
  readonly capabilities: ReadonlySet<PathCapability>
  readonly parameters: ParameterRules
  /** In seconds; 0 for no bound. */
  readonly minWrapSeconds: number
  readonly maxWrapSeconds: number
  readonly mfaMethods: readonly string[]
  /** 0 for none. */
  readonly paginationLimit: number
  /** A name must pass all of them. */
  readonly keyFilters: readonly KeyFilter[]
  readonly sources: readonly (RuleOrigin & { readonly capabilities: ReadonlySet<PathCapability> })[]
}

const NOTHING: readonly never[] = []

/** A rule of one policy as a rule of its own; `path` has its templates filled in. */
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

/** What two rules for the same path amount to. */
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

/** Of those that are given. */
function smallerBound(a: number, b: number): number {
  return a === 0 || b === 0 ? a + b : Math.min(a, b)
}

/** Whether a rule says anything that narrows what others grant. */
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

/** The rule that stands for one that restricts and whose template has no valid value: it denies wherever that could be. */
export function barrierOf(rule: PathRule, policy: string): AclRule {
  const head = rule.path.slice(0, rule.path.indexOf('{{'))
  const capabilities: ReadonlySet<PathCapability> = new Set<PathCapability>(['deny'])
  const { at, path } = rule
  return ruleOf({ path, at, capabilities }, `${head}*`, policy)
}
