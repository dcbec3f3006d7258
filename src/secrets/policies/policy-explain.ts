/**
 * Why a request is allowed or denied: which rule decides, and what kept every other one from it. For people who write
 * policies; the server decides with the same `acl.ts`.
 */
import type { Canonical, CanonicalPath } from '../../engines/framework/path-table.ts'
import { foldRulePath } from '../../engines/framework/name-fold.ts'
import { type AccessRequest, type Acl, type AclSource, compileAcl, type Decision, type RuleOrigin } from './acl.ts'
import { VERSIONED } from './policy-lint.ts'
import { compilePattern, matchesPath, type PathPattern, SplitPath } from './path-pattern.ts'
import type { PathRule } from './path-rules.ts'
import { type EntityFacts, fillTemplate, isTemplate } from './policy-template.ts'

export interface OtherRule {
  readonly origin: RuleOrigin
  /** True when it matches the path, or nearly does. */
  readonly near: boolean
  readonly why: string
}

export interface Explanation {
  readonly decision: Decision
  /** The path that was decided about: that of a list ends with a slash. */
  readonly path: string
  /** Rules that granted, or decided against it. */
  readonly deciding: readonly RuleOrigin[]
  /** All others, in the order of the documents. */
  readonly others: readonly OtherRule[]
  /** Where the request is denied: what would be allowed if the store is a versioned one and its path had been given. */
  readonly meant: string | undefined
}

interface Context extends Pick<CanonicalPath, 'folds'> {
  readonly sources: readonly AclSource[]
  readonly nowMs: number
  readonly entity: EntityFacts | undefined
}

export function explain(
  sources: readonly AclSource[],
  request: AccessRequest,
  nowMs: number,
  { canonical, entity }: { readonly entity?: EntityFacts | undefined; readonly canonical?: Canonical } = {},
): Explanation {
  const acl = compileAcl(sources, nowMs, entity)
  const meantRequest = { ...request, ...canonical?.(askedPath(request)) }
  const { folds } = meantRequest
  const decision = acl.decide(meantRequest, canonical)
  const path = askedPath(meantRequest)
  const context = { sources, nowMs, entity, folds }
  const winner = winnerOf(acl, decision, context)
  const isDeciding = (origin: RuleOrigin) => decision.rules.some((each) => isSame(each, origin))
  const others = sources.flatMap(({ name: policy, policy: { paths } }, index) =>
    paths.flatMap((rule) => {
      const origin = { policy, path: rule.path, at: rule.at }
      if (isDeciding(origin)) return []
      return [{ origin, ...judged(rule, { context, index, path, listing: isListing(request), winner, decision }) }]
    }),
  )
  return {
    decision,
    path,
    deciding: decision.rules,
    others,
    meant: decision.allowed ? undefined : meant(acl, meantRequest),
  }
}

/** `secret/app` is `secret/data/app` in a versioned store, and its names are at `secret/metadata/app`. */
function meant(acl: Acl, request: AccessRequest): string | undefined {
  const [mount = '', kind = '', ...rest] = askedPath(request).split('/')
  if (kind === '' || VERSIONED.includes(kind)) return undefined
  const folder = isListing(request) ? 'metadata' : 'data'
  const path = [mount, folder, kind, ...rest].join('/')
  const { allowed, rules } = acl.decide({ ...request, path })
  // A rule that does not speak of versions would allow whatever path one likes.
  return allowed && rules.some((rule) => rule.path.split('/')[1] === folder) ? path : undefined
}

function isListing({ operation }: AccessRequest): boolean {
  return operation === 'list' || operation === 'scan'
}

function askedPath(request: AccessRequest): string {
  const path = request.path.replace(/^\/+/, '')
  return isListing(request) && path !== '' && !path.endsWith('/') ? `${path}/` : path
}

function isSame(a: RuleOrigin, b: RuleOrigin): boolean {
  return a.policy === b.policy && a.at.line === b.at.line && a.at.column === b.at.column && a.path === b.path
}

/** The pattern that decides; undefined where none does. */
function winnerOf(acl: Acl, { rules: [first] }: Decision, { folds }: Context): PathPattern | undefined {
  if (!first) return undefined
  const rules = [...acl.rules, ...acl.barriers]
  const text = rules.find(({ sources }) => sources.some((each) => isSame(each, first)))?.pattern.text
  return text === undefined ? undefined : compilePattern(folds ? foldRulePath(text, folds) : text)
}

interface Asked {
  readonly context: Context
  readonly index: number
  readonly path: string
  readonly listing: boolean
  readonly winner: PathPattern | undefined
  readonly decision: Decision
}

function judged(rule: PathRule, asked: Asked): Omit<OtherRule, 'origin'> {
  const { context, decision, winner } = asked
  const pattern = filledPattern(rule, context, asked.index)
  if (typeof pattern === 'string') return { near: false, why: pattern }
  const how = matched(pattern, asked.path, asked.listing)
  if (!how) return mismatch(pattern, asked.path)
  if (rule.expiresAtMs !== undefined && rule.expiresAtMs <= context.nowMs) {
    return { near: true, why: `ended at ${new Date(rule.expiresAtMs).toISOString()}` }
  }
  if (decision.reason === 'template') {
    return { near: true, why: 'a rule that restricts has no valid value in its template and denies first' }
  }
  if (!winner || winner.text !== pattern.text) return { near: true, why: lost(pattern, how, winner, asked) }
  const isDenied = decision.reason === 'deny'
  return { near: true, why: isDenied ? 'the same path, and there deny wins' : 'the same path, and does not grant it' }
}

function filledPattern(rule: PathRule, { entity, folds, sources }: Context, index: number): PathPattern | string {
  const compiled = (text: string) => compilePattern(folds ? foldRulePath(text, folds) : text)
  if (!isTemplate(rule.path)) return compiled(rule.path)
  const source = sources[index]
  const filled = fillTemplate(rule.path, entity, {
    slashes: source?.freeSlashes ?? false,
    wildcards: source?.freeWildcards ?? false,
  })
  if (typeof filled !== 'string') return compiled(filled.path)
  if (filled === 'unsafe value') return 'a value of its template holds a wildcard or a slash'
  return entity ? 'its template has no value' : 'its template needs an entity, give one with -entity'
}

/** `whole`, or `bare` when only the path without the slash at its end matches, which counts for lists. */
function matched(pattern: PathPattern, path: string, listing: boolean): 'whole' | 'bare' | undefined {
  if (matchesPath(pattern, new SplitPath(path))) return 'whole'
  if (!listing || !path.endsWith('/')) return undefined
  return matchesPath(pattern, new SplitPath(path.slice(0, -1))) ? 'bare' : undefined
}

function mismatch(pattern: PathPattern, path: string): Omit<OtherRule, 'origin'> {
  const folded = compilePattern(pattern.text.toLowerCase())
  if (matchesPath(folded, new SplitPath(path.toLowerCase()))) {
    return { near: true, why: 'does not match: letters differ in case' }
  }
  if (pattern.kind === 'exact' && path.startsWith(`${pattern.text}/`)) {
    return { near: true, why: 'does not match: it is for this one path, end it in /* for what is below' }
  }
  if (pattern.text.endsWith('/*') && path === pattern.text.slice(0, -2)) {
    return { near: true, why: 'does not match: it is for what is below, not for the folder itself' }
  }
  return { near: false, why: 'does not match' }
}

/** Why a pattern that matches is not the closest. */
function lost(pattern: PathPattern, how: 'whole' | 'bare', winner: PathPattern | undefined, asked: Asked): string {
  if (!winner) return 'matches'
  if (winner.kind === 'exact') return 'a rule for exactly this path comes first'
  if (how === 'bare' && matched(winner, asked.path, true) === 'whole') {
    return 'matches only without the slash at the end, which is asked last'
  }
  if (pattern.head.length !== winner.head.length) return 'its first wildcard stands earlier'
  if (pattern.open !== winner.open) return 'it ends in *'
  if (pattern.pluses !== winner.pluses) return 'it has more +'
  return pattern.body.length === winner.body.length ? 'as text it comes before the other' : 'it is shorter'
}
