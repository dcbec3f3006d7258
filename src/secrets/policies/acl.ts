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
 * An ACL is a value: nothing changes it. It holds for the moments from `validFromMs` to before `validUntilMs`, because
 * rules may expire, and for the entity facts that it was made with.
 */
import { ruleOf, unite } from './acl-rule.ts'
import type { AclRule, RuleOrigin } from './acl-rule.ts'
import { filteredPath } from './key-filter.ts'
import { objection } from './parameter-rules.ts'
import type { ParameterFault, RequestData } from './parameter-rules.ts'
import { closestFirst, matchesPath, reachesBelow, SplitPath } from './path-pattern.ts'
import type { PathCapability } from './path-rules.ts'
import { fillTemplate, isTemplate } from './policy-template.ts'
import type { EntityFacts } from './policy-template.ts'
import type { Policy } from './policy.ts'

export type { AclRule, RuleOrigin }

export type AclOperation = 'read' | 'list' | 'scan' | 'create' | 'update' | 'patch' | 'delete' | 'help'

export interface AccessRequest {
  readonly operation: AclOperation
  /** Without namespace and without a leading slash; canonical otherwise. */
  readonly path: string
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
  decide(request: AccessRequest): Decision
  /** What may be done at a path: names in order, or `root`, or `deny` where it is nothing. */
  capabilities(path: string): readonly string[]
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
  const term = new Term(nowMs)
  let templated = false
  let isLost = false
  for (const source of sources) {
    const free = { slashes: source.freeSlashes ?? false, wildcards: source.freeWildcards ?? false }
    if (!term.includes(source.expiresAtMs)) continue
    for (const rule of source.policy.paths) {
      if (!term.includes(rule.expiresAtMs)) continue
      templated ||= isTemplate(rule.path)
      const filled = isTemplate(rule.path) ? fillTemplate(rule.path, entity, free) : rule
      if (filled === 'unsafe value' && rule.capabilities.has('deny')) isLost = true
      if (typeof filled === 'string') continue
      const added = ruleOf(rule, filled.path, source.name)
      const known = drafts.get(filled.path)
      drafts.set(filled.path, known ? unite(known, added) : added)
    }
  }
  return new CompiledAcl(isLost ? [] : [...drafts.values()], term, templated)
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

class CompiledAcl implements Acl {
  readonly root = false
  readonly validFromMs: number
  readonly validUntilMs: number
  readonly templated: boolean
  readonly rules: readonly AclRule[]
  readonly #exact = new Map<string, AclRule>()
  /** Wildcard rules by what stands before the first wildcard, closest first. */
  readonly #byHead = new Map<string, AclRule[]>()
  /** The lengths of these beginnings, longest first. */
  readonly #headLengths: readonly number[]

  constructor(rules: readonly AclRule[], term: Term, templated: boolean) {
    this.rules = rules
    this.validFromMs = term.fromMs
    this.validUntilMs = term.untilMs
    this.templated = templated
    for (const rule of rules) {
      const { kind, head, text } = rule.pattern
      if (kind === 'exact') this.#exact.set(text, rule)
      else if (!this.#byHead.get(head)?.push(rule)) this.#byHead.set(head, [rule])
    }
    for (const bucket of this.#byHead.values()) bucket.sort((a, b) => closestFirst(a.pattern, b.pattern))
    this.#headLengths = [...new Set([...this.#byHead.keys()].map((head) => head.length))].sort((a, b) => b - a)
  }

  decide(request: AccessRequest): Decision {
    const decision = this.#judge(request)
    // Who asks with codes says so (rights.ts); every other question is answered as for a caller without them.
    const isKept = decision.allowed && decision.mfaMethods.length > 0
    return isKept ? { ...decision, allowed: false, reason: 'second factor' } : decision
  }

  #judge(request: AccessRequest): Decision {
    const { operation } = request
    if (operation === 'help') return verdict(true, 'help')
    const listing = operation === 'list' || operation === 'scan'
    const path = request.path.replace(/^\/+/, '')
    // The request path adds the slash; a caller that did not must not get another answer.
    const asked = listing && path !== '' && !path.endsWith('/') ? `${path}/` : path
    const rule = this.#deciding(asked, listing)
    if (!rule) return verdict(false, 'no rule')
    if (!rule.capabilities.has(operation)) {
      return verdict(false, rule.capabilities.has('deny') ? 'deny' : 'not granted', rule)
    }
    if (!wrapsWithin(rule, request.wrapTtlSeconds)) return verdict(false, 'wrapping', rule)
    if (listing) {
      const decision = judgeLimit(rule, operation, request.data?.['limit'])
      if (!decision.allowed || rule.keyFilters.length === 0) return decision
      return { ...decision, keeps: (key) => this.#keeps(rule, asked, key) }
    }
    if (operation !== 'delete') {
      const against = objection(rule.parameters, request.data ?? {})
      if (against) return { ...verdict(false, against.why, rule), parameter: against.name }
    }
    return verdict(true, 'granted', rule, operation)
  }

  capabilities(path: string): readonly string[] {
    const rule = this.#deciding(path.replace(/^\/+/, ''), true)
    return rule && rule.capabilities.size > 0 ? [...rule.capabilities].sort() : ['deny']
  }

  allowsAnythingUnder(mountPath: string): boolean {
    if (grants(this.#deciding(mountPath, true))) return true
    return this.rules.some((rule) => grants(rule) && reachesBelow(rule.pattern, mountPath))
  }

  #keeps({ keyFilters }: AclRule, path: string, key: string): boolean {
    const operation = key.endsWith('/') ? 'list' : 'read'
    return keyFilters.every((filter) => {
      const meant = filteredPath(filter, path, key)
      return meant !== undefined && this.decide({ operation, path: meant }).allowed
    })
  }

  /** The rule that decides; with `listing` also the one for the path without its last slash. */
  #deciding(path: string, listing: boolean): AclRule | undefined {
    const bare = listing && path.endsWith('/') ? path.slice(0, -1) : undefined
    return (
      this.#exact.get(path) ??
      (bare === undefined ? undefined : this.#exact.get(bare)) ??
      this.#closest(path) ??
      (bare === undefined ? undefined : this.#closest(bare))
    )
  }

  #closest(text: string): AclRule | undefined {
    const path = new SplitPath(text)
    for (const length of this.#headLengths) {
      if (length > text.length) continue
      const found = this.#byHead.get(text.slice(0, length))?.find((rule) => matchesPath(rule.pattern, path))
      if (found) return found
    }
    return undefined
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
