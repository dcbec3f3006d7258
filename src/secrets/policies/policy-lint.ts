/** Warnings about valid policies: common mistakes. */
import type { TextPosition } from '../../config/hcl.ts'
import { closestFirst, compilePattern } from './path-pattern.ts'
import type { PathPattern } from './path-pattern.ts'
import type { PathRule } from './path-rules.ts'
import { isTemplate } from './policy-template.ts'
import type { Policy } from './policy.ts'

export interface PolicyWarning {
  readonly at: TextPosition
  readonly message: string
}

/** First segments below the mount of a versioned key-value store. */
export const VERSIONED_SEGMENTS = [
  'data',
  'metadata',
  'delete',
  'undelete',
  'destroy',
  'subkeys',
  'config',
  'detailed-metadata',
]
/** Characters that a comparison of all pairs of rules reads: 1000 rules with 50 characters take some ten milliseconds. */
const COMPARED_CHARACTERS_MAX = 50_000_000

interface ComparedPattern {
  readonly pattern: PathPattern
  /** Segments of the text without a trailing `*`. */
  readonly segments: readonly string[]
}

export function lintPolicy(policy: Policy, nowMs: number): PolicyWarning[] {
  const mounts = versionedMounts(policy.paths)
  const patterns = comparedPatterns(policy)
  return policy.paths.flatMap((rule, index) => {
    const pattern = patterns[index]
    const messages = [
      ...pathWarnings(rule.path),
      ...capabilityWarnings(rule, nowMs),
      ...versionWarnings(rule, mounts),
      ...(pattern && !isTemplate(rule.path) ? shadowWarnings(pattern, patterns) : []),
    ]
    return messages.map((message) => ({ at: rule.at, message }))
  })
}

/** None if there are too many rules to compare all pairs. */
function comparedPatterns({ paths }: Policy): readonly ComparedPattern[] {
  const characters = paths.reduce((sum, { path }) => sum + path.length, 0)
  if (paths.length * characters > COMPARED_CHARACTERS_MAX) return []
  return paths.map(({ path }) => {
    const pattern = compilePattern(path)
    return { pattern, segments: pattern.body.split('/') }
  })
}

function pathWarnings(path: string): string[] {
  const plain = path.replaceAll(/\{\{.*?\}\}/g, 'x')
  const body = plain.replace(/\*$/, '')
  const found: string[] = []
  if (body.includes('*')) found.push('a * that is not at the end is a literal character; use + for one segment')
  const odd = body.split('/').find((segment) => segment !== '+' && segment.includes('+'))
  if (odd !== undefined) found.push('a + that is not a whole segment is a literal character')
  if (plain.startsWith('v1/')) found.push('paths of rules do not start with v1/')
  if (plain.includes('//')) found.push('no request path contains //')
  return found
}

function capabilityWarnings({ capabilities, expiresAtMs }: PathRule, nowMs: number): string[] {
  const found: string[] = []
  if (capabilities.size === 0) found.push('a rule without capabilities denies every request to its path')
  if (capabilities.size === 1 && capabilities.has('sudo'))
    found.push('sudo alone grants nothing: add other capabilities')
  if (expiresAtMs !== undefined && expiresAtMs <= nowMs) found.push('the rule has expired')
  return found
}

/** Mounts that some rule treats as versioned, and `secret`, which is by default. */
function versionedMounts(rules: readonly PathRule[]): ReadonlySet<string> {
  const found = rules.flatMap(({ path }) => /^([^*+{]+?)\/(?:data|metadata)\//.exec(path)?.[1] ?? [])
  return new Set(['secret', ...found])
}

function versionWarnings({ capabilities, path }: PathRule, mounts: ReadonlySet<string>): string[] {
  for (const mount of mounts) {
    if (!path.startsWith(`${mount}/`)) continue
    const rest = path.slice(mount.length + 1)
    const [kind = ''] = rest.split('/')
    const start = kind.replace(/\*$/, '')
    if (kind === '' || kind === '+' || kind.includes('{{')) return []
    if (kind !== start && VERSIONED_SEGMENTS.some((each) => each.startsWith(start))) return []
    if (kind === 'data' && capabilities.has('list')) {
      return [`if ${mount}/ is versioned (v2), names are listed below ${mount}/metadata/, not below ${mount}/data/`]
    }
    if (VERSIONED_SEGMENTS.includes(kind)) return []
    return [
      `if ${mount}/ is versioned (v2), values are at ${mount}/data/${rest} and names at ${mount}/metadata/${rest}`,
    ]
  }
  return []
}

/** A warning if another rule matches the same paths and has precedence. */
function shadowWarnings(compared: ComparedPattern, patterns: readonly ComparedPattern[]): string[] {
  const { pattern } = compared
  if (pattern.kind === 'exact') return []
  const always = patterns.find(
    ({ pattern: other }) => other.text !== pattern.text && covers(other, compared) && closestFirst(other, pattern) < 0,
  )?.pattern
  return always ? [`never decides: ${JSON.stringify(always.text)} matches the same paths and takes precedence`] : []
}

/** Whether `wide`, a wildcard pattern, matches every path that `narrow` matches. */
function covers(wide: PathPattern, { pattern: narrow, segments: narrows }: ComparedPattern): boolean {
  if (wide.kind === 'exact' || (narrow.open && !wide.open)) return false
  if (wide.kind === 'prefix') return narrow.head.startsWith(wide.body)
  const wides = wide.segments
  if (wide.open ? narrows.length < wides.length : narrows.length !== wides.length) return false
  return wides.every((segment, at) => {
    const given = narrows[at] ?? ''
    if (wide.open && at === wides.length - 1) return given.startsWith(segment) && (given !== '+' || segment === '')
    return segment === '+' || segment === given
  })
}
