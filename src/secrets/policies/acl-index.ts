/**
 * The index of an ACL: finds the rule with the highest precedence for a path (`acl.ts`).
 *
 * Exact rules are in a map. Wildcard rules are in a map by the text before their first wildcard (the head). Heads are tried from the
 * longest to the shortest, which is the first criterion of precedence, and the rules of one head are sorted. So the first match has the
 * highest precedence, and the cost is one lookup for each length of a head, not one for each rule.
 */
import { foldName, foldRulePath, type FoldShape } from '../../engines/framework/name-fold.ts'
import { type AclRule, unite } from './acl-rule.ts'
import { closestFirst, compilePattern, matchesPath, type PathPattern, SplitPath } from './path-pattern.ts'

export class AclIndex {
  /** Whether the text of some rule can differ from its canonical form, for some shape. */
  readonly isFoldable: boolean
  readonly #rules: readonly AclRule[]
  readonly #barriers: readonly AclRule[]
  readonly #exact = new Map<string, AclRule>()
  readonly #wildcards: WildcardIndex
  readonly #barrierIndex: WildcardIndex

  constructor(rules: readonly AclRule[], barriers: readonly AclRule[]) {
    this.#rules = rules
    this.#barriers = barriers
    this.isFoldable = rules.some(isFoldable) || barriers.some(isFoldable)
    const wildcards: AclRule[] = []
    for (const rule of rules) {
      if (rule.pattern.kind === 'exact') this.#exact.set(rule.pattern.text, rule)
      else wildcards.push(rule)
    }
    this.#wildcards = new WildcardIndex(wildcards)
    this.#barrierIndex = new WildcardIndex(barriers)
  }

  /** The same rules with some segments of their paths folded. Rules with equal paths are merged. */
  folded(shape: FoldShape): AclIndex {
    const rules = new Map<string, AclRule>()
    for (const each of this.#rules) {
      const rule = foldRule(each, shape)
      const { text } = rule.pattern
      const known = rules.get(text)
      rules.set(text, known ? unite(known, rule) : rule)
    }
    const barriers = this.#barriers.map((each) => foldRule(each, shape))
    return new AclIndex([...rules.values()], barriers)
  }

  /** A rule that denies a path because its template has no valid value. */
  barrier(path: string): AclRule | undefined {
    return this.#barrierIndex.closest(path, isBelow)
  }

  /** The rule that decides. With `listing` the path without its trailing slash is tried too. */
  deciding(path: string, listing: boolean): AclRule | undefined {
    const bare = listing && path.endsWith('/') ? path.slice(0, -1) : undefined
    return (
      this.#exact.get(path) ??
      (bare === undefined ? undefined : this.#exact.get(bare)) ??
      this.#wildcards.closest(path, matchesPath) ??
      (bare === undefined ? undefined : this.#wildcards.closest(bare, matchesPath))
    )
  }
}

/** Rules with wildcards, by their heads. */
class WildcardIndex {
  readonly #byHead = new Map<string, AclRule[]>()
  /** Longest first. */
  readonly #headLengths: readonly number[]

  constructor(rules: readonly AclRule[]) {
    for (const rule of rules) {
      const { head } = rule.pattern
      if (!this.#byHead.get(head)?.push(rule)) this.#byHead.set(head, [rule])
    }
    for (const bucket of this.#byHead.values()) bucket.sort((a, b) => closestFirst(a.pattern, b.pattern))
    this.#headLengths = [...new Set([...this.#byHead.keys()].map((head) => head.length))].sort((a, b) => b - a)
  }

  closest(text: string, matches: (pattern: PathPattern, path: SplitPath) => boolean): AclRule | undefined {
    const path = new SplitPath(text)
    for (const length of this.#headLengths) {
      if (length > text.length) continue
      const found = this.#byHead.get(text.slice(0, length))?.find((rule) => matches(rule.pattern, path))
      if (found) return found
    }
    return undefined
  }
}

/** Whether a path matches a pattern that ends in `*` with at least one character for the `*`: a template value is not empty. */
function isBelow(pattern: PathPattern, path: SplitPath): boolean {
  if (!matchesPath(pattern, path)) return false
  if (pattern.kind !== 'segments') return path.text !== pattern.body
  const last = pattern.segments.length - 1
  return path.segments.length > pattern.segments.length || path.segments[last] !== pattern.segments[last]
}

function isFoldable({ pattern: { text } }: AclRule): boolean {
  return text.includes(' ') || foldName(text, 'case') !== text
}

function foldRule(rule: AclRule, shape: FoldShape): AclRule {
  const text = foldRulePath(rule.pattern.text, shape)
  return text === rule.pattern.text ? rule : { ...rule, pattern: compilePattern(text) }
}
