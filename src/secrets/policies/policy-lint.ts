/** What is probably not meant in a policy, although it can be read: mistakes that people make and then look for. */
import type { TextPosition } from '../../config/hcl.ts'
import { closestFirst, compilePattern } from './path-pattern.ts'
import type { PathPattern } from './path-pattern.ts'
import type { PathRule } from './path-rules.ts'
import { isTemplate } from './policy-template.ts'
import type { Policy } from './policy.ts'

export interface Doubt {
  readonly at: TextPosition
  readonly message: string
}

/** What stands behind the mount of a versioned key-value store. */
export const VERSIONED = ['data', 'metadata', 'delete', 'undelete', 'destroy', 'subkeys', 'config', 'detailed-metadata']
/** Comparing every rule with every other is for documents that people write. */
const COMPARED_MAX = 2000

export function doubts(policy: Policy, nowMs: number): Doubt[] {
  const mounts = versionedMounts(policy.paths)
  const patterns = policy.paths.length <= COMPARED_MAX ? policy.paths.map(({ path }) => compilePattern(path)) : []
  return policy.paths.flatMap((rule, index) => {
    const pattern = patterns[index]
    const messages = [
      ...ofText(rule.path),
      ...ofGrants(rule, nowMs),
      ...ofVersions(rule, mounts),
      ...(pattern && !isTemplate(rule.path) ? ofOthers(pattern, patterns) : []),
    ]
    return messages.map((message) => ({ at: rule.at, message }))
  })
}

function ofText(path: string): string[] {
  const plain = path.replaceAll(/\{\{.*?\}\}/g, 'x')
  const body = plain.replace(/\*$/, '')
  const found: string[] = []
  if (body.includes('*'))
    found.push('a * that is not at the end is a character like any other; + stands for one segment')
  const odd = body.split('/').find((segment) => segment !== '+' && segment.includes('+'))
  if (odd !== undefined) found.push('a + that is not a whole segment is a character like any other')
  if (plain.startsWith('v1/')) found.push('paths of rules are without v1/ in front')
  if (plain.includes('//')) found.push('no request has // in its path')
  return found
}

function ofGrants({ capabilities, expiresAtMs }: PathRule, nowMs: number): string[] {
  const found: string[] = []
  if (capabilities.size === 0) found.push('a rule without capabilities denies everything at its path')
  if (capabilities.size === 1 && capabilities.has('sudo'))
    found.push('sudo alone grants nothing: add what is to be done')
  if (expiresAtMs !== undefined && expiresAtMs <= nowMs) found.push('the rule has expired')
  return found
}

/** Mounts that some rule treats as versioned, and the one that is by default. */
function versionedMounts(rules: readonly PathRule[]): ReadonlySet<string> {
  const found = rules.flatMap(({ path }) => /^([^*+{]+?)\/(?:data|metadata)\//.exec(path)?.[1] ?? [])
  return new Set(['secret', ...found])
}

function ofVersions({ capabilities, path }: PathRule, mounts: ReadonlySet<string>): string[] {
  for (const mount of mounts) {
    if (!path.startsWith(`${mount}/`)) continue
    const rest = path.slice(mount.length + 1)
    const [kind = ''] = rest.split('/')
    const start = kind.replace(/\*$/, '')
    if (kind === '' || kind === '+' || kind.includes('{{')) return []
    if (kind !== start && VERSIONED.some((each) => each.startsWith(start))) return []
    if (kind === 'data' && capabilities.has('list')) {
      return [`if ${mount}/ is versioned (v2), names are listed below ${mount}/metadata/, not below ${mount}/data/`]
    }
    if (VERSIONED.includes(kind)) return []
    return [
      `if ${mount}/ is versioned (v2), values are at ${mount}/data/${rest} and names at ${mount}/metadata/${rest}`,
    ]
  }
  return []
}

/** Another rule that takes every path from it. */
function ofOthers(pattern: PathPattern, patterns: readonly PathPattern[]): string[] {
  if (pattern.kind === 'exact') return []
  const always = patterns.find(
    (other) => other.text !== pattern.text && covers(other, pattern) && closestFirst(other, pattern) < 0,
  )
  return always ? [`never decides: ${JSON.stringify(always.text)} matches all that it does, and is closer`] : []
}

/** Whether `wide`, a wildcard pattern, matches every path that `narrow` does. */
function covers(wide: PathPattern, narrow: PathPattern): boolean {
  if (wide.kind === 'exact' || (narrow.open && !wide.open)) return false
  if (wide.kind === 'prefix') return narrow.head.startsWith(wide.body)
  const [wides, narrows] = [wide.segments, narrow.body.split('/')]
  if (wide.open ? narrows.length < wides.length : narrows.length !== wides.length) return false
  return wides.every((segment, at) => {
    const given = narrows[at] ?? ''
    if (wide.open && at === wides.length - 1) return given.startsWith(segment) && (given !== '+' || segment === '')
    return segment === '+' || segment === given
  })
}
