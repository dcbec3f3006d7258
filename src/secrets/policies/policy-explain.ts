/** Explains a decision to authors of policies: the deciding rule, and why each other rule does not decide. Uses the server's `acl.ts`. */
import type { Canonical, CanonicalPath } from '../../engines/framework/path-table.ts'
import { foldRulePath } from '../../engines/framework/name-fold.ts'
import { type AccessRequest, type Acl, type AclSource, compileAcl, type Decision, type RuleOrigin } from './acl.ts'
import { VERSIONED_SEGMENTS } from './policy-lint.ts'
import { compilePattern, matchesPath, SplitPath } from './path-pattern.ts'
import type { PathPattern } from './path-pattern.ts'
import type { PathRule } from './path-rules.ts'
import { type EntityFacts, fillTemplate, isTemplate } from './policy-template.ts'

export interface NonDecidingRule {
  readonly origin: RuleOrigin
  /** Whether the rule matches the path, or nearly does. */
  readonly isNear: boolean
  readonly reason: string
}

export interface Explanation {
  readonly decision: Decision
  /** The path of the request; that of a list ends with a slash. */
  readonly path: string
  /** The rules that granted or denied. */
  readonly deciding: readonly RuleOrigin[]
  /** All other rules, in the order of the documents. */
  readonly others: readonly NonDecidingRule[]
  /** For a denied request: the path in a versioned store that would be allowed. */
  readonly versionedPath: string | undefined
}

interface ExplainContext extends Pick<CanonicalPath, 'folds'> {
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
  const canonicalRequest = { ...request, ...canonical?.(pathOf(request)) }
  const { folds } = canonicalRequest
  const decision = acl.decide(canonicalRequest, canonical)
  const path = pathOf(canonicalRequest)
  const context = { sources, nowMs, entity, folds }
  const winner = winnerOf(acl, decision, context)
  const requested = {
    path,
    split: new SplitPath(path),
    lowerCase: new SplitPath(path.toLowerCase()),
    bare: bareOf(path),
  }
  const listing = isListing(request)
  const isDeciding = (origin: RuleOrigin) => decision.rules.some((each) => isSame(each, origin))
  const others = sources.flatMap(({ name: policy, policy: { paths } }, index) =>
    paths.flatMap((rule) => {
      const origin = { policy, path: rule.path, at: rule.at }
      if (isDeciding(origin)) return []
      return [{ origin, ...explainRule(rule, { ...requested, context, index, listing, winner, decision }) }]
    }),
  )
  return {
    decision,
    path,
    deciding: decision.rules,
    others,
    versionedPath: decision.allowed ? undefined : versionedPathOf(acl, canonicalRequest),
  }
}

/** In a versioned store `secret/app` is at `secret/data/app`, and its names are at `secret/metadata/app`. */
function versionedPathOf(acl: Acl, request: AccessRequest): string | undefined {
  const [mount = '', kind = '', ...rest] = pathOf(request).split('/')
  if (kind === '' || VERSIONED_SEGMENTS.includes(kind)) return undefined
  const folder = isListing(request) ? 'metadata' : 'data'
  const path = [mount, folder, kind, ...rest].join('/')
  const { allowed, rules } = acl.decide({ ...request, path })
  // A wildcard rule would allow any path: only a rule with this segment is a hint.
  return allowed && rules.some((rule) => rule.path.split('/')[1] === folder) ? path : undefined
}

/** The path without its trailing slash, which counts for lists. */
function bareOf(path: string): SplitPath | undefined {
  return path.endsWith('/') ? new SplitPath(path.slice(0, -1)) : undefined
}

function isListing({ operation }: AccessRequest): boolean {
  return operation === 'list' || operation === 'scan'
}

function pathOf(request: AccessRequest): string {
  const path = request.path.replace(/^\/+/, '')
  return isListing(request) && path !== '' && !path.endsWith('/') ? `${path}/` : path
}

function isSame(a: RuleOrigin, b: RuleOrigin): boolean {
  return a.policy === b.policy && a.at.line === b.at.line && a.at.column === b.at.column && a.path === b.path
}

/** The deciding pattern; undefined if no rule matches. */
function winnerOf(acl: Acl, { rules: [first] }: Decision, { folds }: ExplainContext): PathPattern | undefined {
  if (!first) return undefined
  const rules = [...acl.rules, ...acl.barriers]
  const text = rules.find(({ sources }) => sources.some((each) => isSame(each, first)))?.pattern.text
  return text === undefined ? undefined : compilePattern(folds ? foldRulePath(text, folds) : text)
}

interface RuleQuery {
  readonly context: ExplainContext
  readonly index: number
  readonly path: string
  /** The path, split once for all rules. */
  readonly split: SplitPath
  readonly lowerCase: SplitPath
  readonly bare: SplitPath | undefined
  readonly listing: boolean
  readonly winner: PathPattern | undefined
  readonly decision: Decision
}

function explainRule(rule: PathRule, query: RuleQuery): Omit<NonDecidingRule, 'origin'> {
  const { context, decision, winner } = query
  const pattern = filledPattern(rule, context, query.index)
  if (typeof pattern === 'string') return { isNear: false, reason: pattern }
  const match = matchOf(pattern, query)
  if (!match) return mismatch(pattern, query)
  if (rule.expiresAtMs !== undefined && rule.expiresAtMs <= context.nowMs) {
    return { isNear: true, reason: `expired at ${new Date(rule.expiresAtMs).toISOString()}` }
  }
  if (decision.reason === 'template') {
    return { isNear: true, reason: 'a restricting rule without a valid template value takes precedence' }
  }
  if (!winner || winner.text !== pattern.text)
    return { isNear: true, reason: precedenceReason(pattern, match, winner, query) }
  const isDenied = decision.reason === 'deny'
  return { isNear: true, reason: isDenied ? 'same path, deny takes precedence' : 'same path, does not grant it' }
}

function filledPattern(
  rule: PathRule,
  { entity, folds, sources }: ExplainContext,
  index: number,
): PathPattern | string {
  const compiled = (text: string) => compilePattern(folds ? foldRulePath(text, folds) : text)
  if (!isTemplate(rule.path)) return compiled(rule.path)
  const source = sources[index]
  const filled = fillTemplate(rule.path, entity, {
    slashes: source?.freeSlashes ?? false,
    wildcards: source?.freeWildcards ?? false,
  })
  if (typeof filled !== 'string') return compiled(filled.path)
  if (filled === 'unsafe value') return 'a value of its template contains a wildcard or a slash'
  return entity ? 'its template has no value' : 'its template requires an entity, set one with -entity'
}

/** `bare` if only the path without the trailing slash matches, which counts for lists. */
function matchOf(pattern: PathPattern, { bare, listing, split }: RuleQuery): 'whole' | 'bare' | undefined {
  if (matchesPath(pattern, split)) return 'whole'
  return listing && bare && matchesPath(pattern, bare) ? 'bare' : undefined
}

function mismatch(pattern: PathPattern, { lowerCase, path }: RuleQuery): Omit<NonDecidingRule, 'origin'> {
  if (matchesPath(compilePattern(pattern.text.toLowerCase()), lowerCase)) {
    return { isNear: true, reason: 'does not match: differs in case' }
  }
  if (pattern.kind === 'exact' && path.startsWith(`${pattern.text}/`)) {
    return { isNear: true, reason: 'does not match: covers this path only, append /* for paths below it' }
  }
  if (pattern.text.endsWith('/*') && path === pattern.text.slice(0, -2)) {
    return { isNear: true, reason: 'does not match: covers paths below the folder, not the folder itself' }
  }
  return { isNear: false, reason: 'does not match' }
}

/** The reason why another pattern takes precedence over a matching one. */
function precedenceReason(
  pattern: PathPattern,
  match: 'whole' | 'bare',
  winner: PathPattern | undefined,
  query: RuleQuery,
): string {
  if (!winner) return 'matches'
  if (winner.kind === 'exact') return 'a rule for exactly this path takes precedence'
  if (match === 'bare' && matchesPath(winner, query.split)) {
    return 'matches only without the trailing slash, which has the lowest precedence'
  }
  if (pattern.head.length !== winner.head.length) return 'its first wildcard is earlier'
  if (pattern.open !== winner.open) return 'it ends in *'
  if (pattern.pluses !== winner.pluses) return 'it has more + segments'
  return pattern.body.length === winner.body.length ? 'it sorts before the deciding rule' : 'it is shorter'
}
