/**
 * The permissions of one caller for paths of the secrets core: the compiled `path` rules of all its policies.
 *
 * Rules with the same path, with templates filled in, are merged: capabilities and restrictions are united, and `deny` overrides all.
 * Rules with different paths are not merged: the one with the highest precedence decides alone. That is the rule with exactly the
 * request's path, or the first matching wildcard rule in the order of `closestFirst` (`acl-index.ts`). If no rule matches the path of a
 * list or scan, which ends in a slash, the path without the slash is tried.
 *
 * If the engine at a path folds names, the request's path is canonical, and the rules are folded at the same segments before they are
 * compared. So a rule in upper case applies, and is merged with the rule in lower case.
 *
 * A restricting rule whose template has no valid value becomes a *barrier*: it denies every path below the text before its first
 * template, even if other rules grant it, because the path that it restricts is unknown.
 *
 * An ACL is immutable. It is valid from `validFromMs` until before `validUntilMs`, because rules expire, and for the entity facts that it
 * was compiled with.
 */
import type { Canonical } from '../../engines/framework/path-table.ts'
import type { EngineFields } from '../../engines/framework/fields.ts'
import type { FoldShape } from '../../engines/framework/name-fold.ts'
import { AclIndex } from './acl-index.ts'
import { type AclRule, barrierOf, restricts, ruleOf, type RuleOrigin, unite } from './acl-rule.ts'
import { filteredPath } from './key-filter.ts'
import { findParameterFault } from './parameter-rules.ts'
import type { ParameterFault, RequestData } from './parameter-rules.ts'
import { reachesBelow } from './path-pattern.ts'
import type { PathCapability } from './path-rules.ts'
import { type EntityFacts, fillTemplate, isTemplate } from './policy-template.ts'
import type { Policy } from './policy.ts'

export type { AclRule, RuleOrigin }

export type AclOperation = 'read' | 'list' | 'scan' | 'create' | 'update' | 'patch' | 'delete' | 'help'

export interface AccessRequest {
  readonly operation: AclOperation
  /** Canonical, without a leading slash. */
  readonly path: string
  /** The segments of the path that the engine folds. */
  readonly folds?: FoldShape | undefined
  /** The fields of the path, with the folds of their values. */
  readonly fields?: EngineFields | undefined
  /** The body, or the query of a verb without a body. Has the `limit` of a list or scan. */
  readonly data?: RequestData
  /** Requested TTL of a wrapped response; undefined for a response that is not wrapped. */
  readonly wrapTtlSeconds?: number | undefined
}

export type DecisionReason =
  | 'root'
  | 'help'
  | 'granted'
  | 'no rule'
  | 'deny'
  | 'not granted'
  | 'wrapping'
  | 'limit'
  | 'second factor'
  | 'template'
  | ParameterFault

export interface Decision {
  readonly allowed: boolean
  readonly reason: DecisionReason
  /** Whether the deciding rule has the capability `sudo`. */
  readonly sudo: boolean
  /** The rules that granted or denied; empty for root and if no rule matched. */
  readonly rules: readonly RuleOrigin[]
  /** The parameter that caused the denial, as in the request or the rule. */
  readonly parameter?: string
  /** MFA methods of which the caller must provide a code, if the reason is `second factor`. */
  readonly mfaMethods: readonly string[]
  /** Filter for the names of a list; absent: all names are visible. */
  readonly keeps?: (key: string) => boolean
  /** The effective `limit` of a list or scan, 0 for all; undefined: as requested. */
  readonly limit?: number
}

export interface Acl {
  readonly root: boolean
  readonly validFromMs: number
  readonly validUntilMs: number
  /** Whether the ACL of the same policies depends on the entity. */
  readonly templated: boolean
  /** Every rule; empty for root. */
  readonly rules: readonly AclRule[]
  /** Restricting rules whose templates have no valid value: they deny all paths that their patterns match. */
  readonly barriers: readonly AclRule[]
  /** `canonical` canonicalizes the paths of names in a list; absent: every path is canonical. */
  decide(request: AccessRequest, canonical?: Canonical): Decision
  /** The capabilities at a canonical path, sorted; `root` for root, `deny` for none. */
  capabilities(path: string, folds?: FoldShape): readonly string[]
  /** Whether some rule may grant access at or below a mount, whose path ends with a slash. */
  allowsAnythingUnder(mountPath: string): boolean
}

export interface AclSource {
  readonly name: string
  readonly policy: Policy
  /** Expiry of the whole policy. */
  readonly expiresAtMs?: number
  readonly freeSlashes?: boolean
  readonly freeWildcards?: boolean
}

const NOTHING: readonly never[] = []

/** The ACL of the policy `root`. */
export const rootAcl: Acl = Object.freeze<Acl>({
  root: true,
  validFromMs: Number.NEGATIVE_INFINITY,
  validUntilMs: Number.POSITIVE_INFINITY,
  templated: false,
  rules: NOTHING,
  barriers: NOTHING,
  decide: ({ data }) => ({
    allowed: true,
    reason: 'root',
    sudo: true,
    rules: NOTHING,
    mfaMethods: NOTHING,
    ...(data?.['limit'] === 'max' ? { limit: 0 } : {}),
  }),
  capabilities: () => ['root'],
  allowsAnythingUnder: () => true,
})

/** Compiles policies, of which none is `root`, for the current facts of the caller's entity. */
export function compileAcl(sources: readonly AclSource[], nowMs: number, entity?: EntityFacts): Acl {
  const rules = new Map<string, AclRule>()
  const barriers = new Map<string, AclRule>()
  const validity = new ValidityPeriod(nowMs)
  let templated = false
  for (const source of sources) {
    const free = { slashes: source.freeSlashes ?? false, wildcards: source.freeWildcards ?? false }
    if (!validity.includes(source.expiresAtMs)) continue
    for (const rule of source.policy.paths) {
      if (!validity.includes(rule.expiresAtMs)) continue
      templated ||= isTemplate(rule.path)
      const filled = isTemplate(rule.path) ? fillTemplate(rule.path, entity, free) : rule
      if (typeof filled === 'string') {
        if (restricts(rule)) {
          const barrier = barrierOf(rule, source.name)
          const { text } = barrier.pattern
          if (!barriers.has(text)) barriers.set(text, barrier)
        }
        continue
      }
      const added = ruleOf(rule, filled.path, source.name)
      const known = rules.get(filled.path)
      rules.set(filled.path, known ? unite(known, added) : added)
    }
  }
  return new CompiledAcl([...rules.values()], [...barriers.values()], validity, templated)
}

/** The period in which the same policies and rules are in force as now. */
class ValidityPeriod {
  readonly #nowMs: number
  fromMs = Number.NEGATIVE_INFINITY
  untilMs = Number.POSITIVE_INFINITY

  constructor(nowMs: number) {
    this.#nowMs = nowMs
  }

  /** Whether something with this expiry is in force. */
  includes(expiresAtMs: number | undefined): boolean {
    if (expiresAtMs === undefined) return true
    const isInForce = expiresAtMs > this.#nowMs
    if (isInForce) this.untilMs = Math.min(this.untilMs, expiresAtMs)
    else this.fromMs = Math.max(this.fromMs, expiresAtMs)
    return isInForce
  }
}

/** Cached indexes with folded rules, one for each shape of paths: more than a caller uses at a time. */
const FOLDED_INDEXES_MAX = 8

class CompiledAcl implements Acl {
  readonly root = false
  readonly validFromMs: number
  readonly validUntilMs: number
  readonly templated: boolean
  readonly rules: readonly AclRule[]
  readonly barriers: readonly AclRule[]
  readonly #index: AclIndex
  /** By `FoldShape.key`. */
  readonly #folded = new Map<string, AclIndex>()

  constructor(rules: readonly AclRule[], barriers: readonly AclRule[], validity: ValidityPeriod, templated: boolean) {
    this.rules = rules
    this.barriers = barriers
    this.validFromMs = validity.fromMs
    this.validUntilMs = validity.untilMs
    this.templated = templated
    this.#index = new AclIndex(rules, barriers)
  }

  #indexFor(folds: FoldShape | undefined): AclIndex {
    if (!folds || !this.#index.isFoldable) return this.#index
    let index = this.#folded.get(folds.key)
    if (!index) {
      if (this.#folded.size >= FOLDED_INDEXES_MAX) this.#folded.clear()
      index = this.#index.folded(folds)
      this.#folded.set(folds.key, index)
    }
    return index
  }

  decide(request: AccessRequest, canonical?: Canonical): Decision {
    const decision = this.#decideWithCode(request, canonical)
    // Without a code. Only `authorization.ts` accepts codes and then ignores this reason.
    const needsCode = decision.allowed && decision.mfaMethods.length > 0
    return needsCode ? { ...decision, allowed: false, reason: 'second factor' } : decision
  }

  #decideWithCode(request: AccessRequest, canonical: Canonical | undefined): Decision {
    const { folds, operation } = request
    if (operation === 'help') return decisionOf(true, 'help')
    const listing = operation === 'list' || operation === 'scan'
    const path = request.path.replace(/^\/+/, '')
    // The slash is optional in a request.
    const decided = listing && path !== '' && !path.endsWith('/') ? `${path}/` : path
    const index = this.#indexFor(folds)
    const barrier = index.barrier(decided)
    if (barrier) return decisionOf(false, 'template', barrier)
    const rule = index.deciding(decided, listing)
    if (!rule) return decisionOf(false, 'no rule')
    if (!rule.capabilities.has(operation)) {
      return decisionOf(false, rule.capabilities.has('deny') ? 'deny' : 'not granted', rule)
    }
    if (!allowsWrapTtl(rule, request.wrapTtlSeconds)) return decisionOf(false, 'wrapping', rule)
    if (listing) {
      const decision = decideLimit(rule, operation, request.data?.['limit'])
      if (!decision.allowed || rule.keyFilters.length === 0) return decision
      return { ...decision, keeps: (key) => this.#keeps(rule, decided, key, canonical) }
    }
    if (operation !== 'delete') {
      const fault = findParameterFault(rule.parameters, request.data ?? {}, request.fields)
      if (fault) return { ...decisionOf(false, fault.reason, rule), parameter: fault.name }
    }
    return decisionOf(true, 'granted', rule, operation)
  }

  capabilities(path: string, folds?: FoldShape): readonly string[] {
    const decided = path.replace(/^\/+/, '')
    const index = this.#indexFor(folds)
    const rule = index.barrier(decided) ?? index.deciding(decided, true)
    return rule && rule.capabilities.size > 0 ? [...rule.capabilities].sort() : ['deny']
  }

  allowsAnythingUnder(mountPath: string): boolean {
    if (this.#index.barrier(mountPath)) return false
    if (grants(this.#index.deciding(mountPath, true))) return true
    return this.rules.some((rule) => grants(rule) && reachesBelow(rule.pattern, mountPath))
  }

  #keeps({ keyFilters }: AclRule, path: string, key: string, canonical: Canonical | undefined): boolean {
    const operation = key.endsWith('/') ? 'list' : 'read'
    return keyFilters.every((filter) => {
      const filtered = filteredPath(filter, path, key)
      if (filtered === undefined) return false
      return this.decide({ ...(canonical?.(filtered) ?? { path: filtered }), operation }, canonical).allowed
    })
  }
}

function grants(rule: AclRule | undefined): boolean {
  return rule !== undefined && rule.capabilities.size > 0 && !rule.capabilities.has('deny')
}

function allowsWrapTtl({ minWrapSeconds, maxWrapSeconds }: AclRule, wrapTtlSeconds: number | undefined): boolean {
  if (minWrapSeconds === 0 && maxWrapSeconds === 0) return true
  if (wrapTtlSeconds === undefined) return false
  return wrapTtlSeconds >= minWrapSeconds && (maxWrapSeconds === 0 || wrapTtlSeconds <= maxWrapSeconds)
}

/** Decides about the `limit` of a list or scan. */
function decideLimit(rule: AclRule, operation: 'list' | 'scan', given: unknown): Decision {
  const granted = decisionOf(true, 'granted', rule, operation)
  const max = rule.paginationLimit
  if (max === 0) return given === 'max' ? { ...granted, limit: 0 } : granted
  if (given === undefined || given === '') {
    const required = rule.parameters.required.some((name) => name.toLowerCase() === 'limit')
    return required
      ? { ...decisionOf(false, 'parameter missing', rule), parameter: 'limit' }
      : { ...granted, limit: max }
  }
  const requested = given === 'max' ? 0 : typeof given === 'string' || typeof given === 'number' ? Number(given) : -1
  if (!Number.isInteger(requested) || requested < 0 || requested > max) return decisionOf(false, 'limit', rule)
  return { ...granted, limit: requested === 0 ? max : requested }
}

/** `rules` are those of the merged rule with the capability, or all. */
function decisionOf(
  allowed: boolean,
  reason: DecisionReason,
  rule?: AclRule,
  capability: PathCapability | undefined = reason === 'deny' ? 'deny' : undefined,
): Decision {
  if (!rule) return { allowed, reason, sudo: false, rules: NOTHING, mfaMethods: NOTHING }
  const { sources } = rule
  return {
    allowed,
    reason,
    sudo: rule.capabilities.has('sudo'),
    rules: capability && sources.length > 1 ? sources.filter((each) => each.capabilities.has(capability)) : sources,
    mfaMethods: rule.mfaMethods,
  }
}
