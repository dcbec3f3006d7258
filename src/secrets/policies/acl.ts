/**
 * What one caller may do below the paths of the secrets core: the `path` rules of all its policies, compiled.
 *
 * Rules with the same path, templates filled in, are one: capabilities are united, `deny` beats them all, restrictions
 * add up. Rules with different paths never are: the closest one decides alone, whatever others grant or deny. Closest is
 * the rule with exactly the request's path; else the wildcard rule that comes first in `closestFirst`. A list or scan,
 * whose path ends in a slash, is judged by the path without the slash where nothing else decides.
 *
 * Exact rules are in a map. Wildcard rules are in a map by what stands before their first wildcard; longer beginnings are
 * asked first, which is the first criterion of closeness, and within one beginning the rules are in order. So the first
 * match is the closest, and the cost is one look-up for each length that a beginning has, not one for each rule.
 *
 * Where the engine at a path folds names, the path that is asked about is canonical, and the rules are folded at the same
 * segments before they are compared (`acl-index.ts`): a rule in upper case holds, and is one with the rule in lower case.
 *
 * A rule that restricts and whose template has no valid value is a *barrier*: it denies every path below the text before its
 * first template, whatever other rules say, because the path that it restricts cannot be told.
 *
 * An ACL is a value: nothing changes it. It holds for the moments from `validFromMs` to before `validUntilMs`, because
 * rules may expire, and for the entity facts that it was made with.
 */
import type { Canonical } from '../../engines/framework/path-table.ts'
import type { EngineFields } from '../../engines/framework/fields.ts'
import type { FoldShape } from '../../engines/framework/name-fold.ts'
import { AclIndex } from './acl-index.ts'
import { type AclRule, barrierOf, restricts, ruleOf, type RuleOrigin, unite } from './acl-rule.ts'
import { filteredPath } from './key-filter.ts'
import { objection, type ParameterFault, type RequestData } from './parameter-rules.ts'
import { reachesBelow } from './path-pattern.ts'
import type { PathCapability } from './path-rules.ts'
import { type EntityFacts, fillTemplate, isTemplate } from './policy-template.ts'
import type { Policy } from './policy.ts'

export type { AclRule, RuleOrigin }

export type AclOperation = 'read' | 'list' | 'scan' | 'create' | 'update' | 'patch' | 'delete' | 'help'

export interface AccessRequest {
  readonly operation: AclOperation
  /** Without namespace and without a leading slash; canonical otherwise. */
  readonly path: string
  /** Which segments of the path an engine folds. */
  readonly folds?: FoldShape | undefined
  /** The fields of the path: which of their values an engine folds. */
  readonly fields?: EngineFields | undefined
  /** The body, or the query of a verb without one; `limit` of a list or scan is looked for here. */
  readonly data?: RequestData
  /** How long the caller wants the reply to stay wrapped; absent when not at all. */
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
  /** True when the deciding rule also has `sudo`, whatever else it says. */
  readonly sudo: boolean
  /** The rules that granted, or that decided against it; empty for root and where no rule matched. */
  readonly rules: readonly RuleOrigin[]
  /** The parameter that was objected to, as the caller or the rule named it. */
  readonly parameter?: string
  /** Methods that the caller must also give a code of, where the reason is `second factor`. */
  readonly mfaMethods: readonly string[]
  /** Whether the caller sees a name of the list; absent: it sees them all. */
  readonly keeps?: (key: string) => boolean
  /** What `limit` of a list or scan is to be, 0 for all; undefined: as the caller said. */
  readonly limit?: number
}

export interface Acl {
  readonly root: boolean
  readonly validFromMs: number
  readonly validUntilMs: number
  /** True when another entity, or none, could get another ACL from the same policies. */
  readonly templated: boolean
  /** Every rule; empty for root. */
  readonly rules: readonly AclRule[]
  /** Rules that restrict and whose template has no valid value: they deny all that their pattern matches. */
  readonly barriers: readonly AclRule[]
  /** `canonical` is asked about the paths of names in a list; absent: every path is canonical. */
  decide(request: AccessRequest, canonical?: Canonical): Decision
  /** What may be done at a canonical path: names in order, or `root`, or `deny` where it is nothing. */
  capabilities(path: string, folds?: FoldShape): readonly string[]
  /** Whether there may be anything for the caller at or below a mount, whose path ends with a slash. */
  allowsAnythingUnder(mountPath: string): boolean
}

export interface AclSource {
  readonly name: string
  readonly policy: Policy
  /** The policy as a whole counts only before this moment. */
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

/** Compiles policies, of which none is `root`, for the caller's entity as it is at this moment. */
export function compileAcl(sources: readonly AclSource[], nowMs: number, entity?: EntityFacts): Acl {
  const drafts = new Map<string, AclRule>()
  const barriers = new Map<string, AclRule>()
  const term = new Term(nowMs)
  let templated = false
  for (const source of sources) {
    const free = { slashes: source.freeSlashes ?? false, wildcards: source.freeWildcards ?? false }
    if (!term.includes(source.expiresAtMs)) continue
    for (const rule of source.policy.paths) {
      if (!term.includes(rule.expiresAtMs)) continue
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
      const known = drafts.get(filled.path)
      drafts.set(filled.path, known ? unite(known, added) : added)
    }
  }
  return new CompiledAcl([...drafts.values()], [...barriers.values()], term, templated)
}

/** From when to when everything that may expire is as it is now. */
class Term {
  readonly #nowMs: number
  fromMs = Number.NEGATIVE_INFINITY
  untilMs = Number.POSITIVE_INFINITY

  constructor(nowMs: number) {
    this.#nowMs = nowMs
  }

  /** Whether what ends at this moment, or never, still counts. */
  includes(endMs: number | undefined): boolean {
    if (endMs === undefined) return true
    const counts = endMs > this.#nowMs
    if (counts) this.untilMs = Math.min(this.untilMs, endMs)
    else this.fromMs = Math.max(this.fromMs, endMs)
    return counts
  }
}

/** Shapes of paths that an ACL keeps folded rules for: more than one caller uses at a time. */
const SHAPES_MAX = 8

class CompiledAcl implements Acl {
  readonly root = false
  readonly validFromMs: number
  readonly validUntilMs: number
  readonly templated: boolean
  readonly rules: readonly AclRule[]
  readonly barriers: readonly AclRule[]
  readonly #index: AclIndex
  /** By the key of the shape. */
  readonly #folded = new Map<string, AclIndex>()

  constructor(rules: readonly AclRule[], barriers: readonly AclRule[], term: Term, templated: boolean) {
    this.rules = rules
    this.barriers = barriers
    this.validFromMs = term.fromMs
    this.validUntilMs = term.untilMs
    this.templated = templated
    this.#index = new AclIndex(rules, barriers)
  }

  /** The rules as they are compared with paths of a shape. */
  #indexFor(folds: FoldShape | undefined): AclIndex {
    if (!folds || !this.#index.isFoldable) return this.#index
    let index = this.#folded.get(folds.key)
    if (!index) {
      if (this.#folded.size >= SHAPES_MAX) this.#folded.clear()
      index = this.#index.folded(folds)
      this.#folded.set(folds.key, index)
    }
    return index
  }

  decide(request: AccessRequest, canonical?: Canonical): Decision {
    const decision = this.#judge(request, canonical)
    // Who asks with codes says so (rights.ts); every other question is answered as for a caller without them.
    const isKept = decision.allowed && decision.mfaMethods.length > 0
    return isKept ? { ...decision, allowed: false, reason: 'second factor' } : decision
  }

  #judge(request: AccessRequest, canonical: Canonical | undefined): Decision {
    const { folds, operation } = request
    if (operation === 'help') return verdict(true, 'help')
    const listing = operation === 'list' || operation === 'scan'
    const path = request.path.replace(/^\/+/, '')
    // The request path adds the slash; a caller that did not must not get another answer.
    const asked = listing && path !== '' && !path.endsWith('/') ? `${path}/` : path
    const index = this.#indexFor(folds)
    const barrier = index.barrier(asked)
    if (barrier) return verdict(false, 'template', barrier)
    const rule = index.deciding(asked, listing)
    if (!rule) return verdict(false, 'no rule')
    if (!rule.capabilities.has(operation)) {
      return verdict(false, rule.capabilities.has('deny') ? 'deny' : 'not granted', rule)
    }
    if (!wrapsWithin(rule, request.wrapTtlSeconds)) return verdict(false, 'wrapping', rule)
    if (listing) {
      const decision = judgeLimit(rule, operation, request.data?.['limit'])
      if (!decision.allowed || rule.keyFilters.length === 0) return decision
      return { ...decision, keeps: (key) => this.#keeps(rule, asked, key, canonical) }
    }
    if (operation !== 'delete') {
      const against = objection(rule.parameters, request.data ?? {}, request.fields)
      if (against) return { ...verdict(false, against.why, rule), parameter: against.name }
    }
    return verdict(true, 'granted', rule, operation)
  }

  capabilities(path: string, folds?: FoldShape): readonly string[] {
    const asked = path.replace(/^\/+/, '')
    const index = this.#indexFor(folds)
    const rule = index.barrier(asked) ?? index.deciding(asked, true)
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
      const meant = filteredPath(filter, path, key)
      if (meant === undefined) return false
      return this.decide({ ...(canonical?.(meant) ?? { path: meant }), operation }, canonical).allowed
    })
  }
}

function grants(rule: AclRule | undefined): boolean {
  return rule !== undefined && rule.capabilities.size > 0 && !rule.capabilities.has('deny')
}

function wrapsWithin({ minWrapSeconds, maxWrapSeconds }: AclRule, wrapTtlSeconds: number | undefined): boolean {
  if (minWrapSeconds === 0 && maxWrapSeconds === 0) return true
  if (wrapTtlSeconds === undefined) return false
  return wrapTtlSeconds >= minWrapSeconds && (maxWrapSeconds === 0 || wrapTtlSeconds <= maxWrapSeconds)
}

/** How much of a list the rule lets the caller see at once. */
function judgeLimit(rule: AclRule, operation: 'list' | 'scan', given: unknown): Decision {
  const granted = verdict(true, 'granted', rule, operation)
  const most = rule.paginationLimit
  if (most === 0) return given === 'max' ? { ...granted, limit: 0 } : granted
  if (given === undefined || given === '') {
    const required = rule.parameters.required.some((name) => name.toLowerCase() === 'limit')
    return required ? { ...verdict(false, 'parameter missing', rule), parameter: 'limit' } : { ...granted, limit: most }
  }
  const wanted = given === 'max' ? 0 : typeof given === 'string' || typeof given === 'number' ? Number(given) : -1
  if (!Number.isInteger(wanted) || wanted < 0 || wanted > most) return verdict(false, 'limit', rule)
  return { ...granted, limit: wanted === 0 ? most : wanted }
}

/** Tells which of the rules for the path it was: those that grant, those that deny, else all. */
function verdict(
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
