/** The stored rule of a rate-limit quota, and the lookup of the rule that applies to a request. */
import * as v from 'valibot'
import type { RateLimit } from './quota-buckets.ts'

const GROUPS = ['ip', 'none'] as const

/** How callers are distinguished: by their address, or not at all. */
export type GroupBy = (typeof GROUPS)[number]

export function isGroupBy(text: string): text is GroupBy {
  return GROUPS.some((each) => each === text)
}

export const ruleSchema = v.object({
  name: v.string(),
  /** UUID of the mount, which may move; empty for a global rule. */
  mount: v.string(),
  /** Path below the mount without a trailing slash. A trailing `*` makes it a prefix. Empty: the whole mount. */
  suffix: v.string(),
  /** Requests per interval. */
  rate: v.number(),
  intervalSeconds: v.number(),
  blockSeconds: v.number(),
  groupBy: v.picklist(GROUPS),
  inheritable: v.boolean(),
  /** Rises with each change, which starts new buckets. */
  revision: v.number(),
})

export type QuotaRule = v.InferOutput<typeof ruleSchema>

/** A rule with its limit. */
export interface ActiveRule {
  readonly rule: QuotaRule
  readonly limit: RateLimit
}

interface MountRules {
  whole: ActiveRule | undefined
  readonly exact: Map<string, ActiveRule>
  /** Longest first. */
  readonly prefixes: { readonly prefix: string; readonly active: ActiveRule }[]
}

/**
 * Finds the most specific rule of a path: the path itself, the longest prefix, the mount, the global rule. Case and a trailing slash
 * are ignored below a mount: some engines ignore them too (user names), so another spelling must not evade a quota.
 */
export class QuotaTable {
  #global: ActiveRule | undefined
  readonly #mounts = new Map<string, MountRules>()

  constructor(rules: readonly QuotaRule[]) {
    for (const rule of rules) this.#add({ rule, limit: limitOf(rule) })
    for (const { prefixes } of this.#mounts.values()) prefixes.sort((a, b) => b.prefix.length - a.prefix.length)
  }

  #add(active: ActiveRule): void {
    const { mount, suffix } = active.rule
    if (mount === '') {
      this.#global = active
      return
    }
    const rules: MountRules = this.#mounts.get(mount) ?? { whole: undefined, exact: new Map(), prefixes: [] }
    this.#mounts.set(mount, rules)
    if (suffix === '') rules.whole = active
    else if (suffix.endsWith('*')) rules.prefixes.push({ prefix: suffix.slice(0, -1).toLowerCase(), active })
    else rules.exact.set(suffix.toLowerCase(), active)
  }

  /** `mount` is the UUID of the request's mount, `rest` the path below it. */
  find(mount: string | undefined, rest: string): ActiveRule | undefined {
    const rules = mount === undefined ? undefined : this.#mounts.get(mount)
    return (rules && mostSpecific(rules, rest)) ?? this.#global
  }
}

function mostSpecific({ exact, prefixes, whole }: MountRules, rest: string): ActiveRule | undefined {
  if (exact.size === 0 && prefixes.length === 0) return whole
  const path = rest.toLowerCase()
  const found = exact.get(withoutSlash(path)) ?? prefixes.find(({ prefix }) => path.startsWith(prefix))?.active
  return found ?? whole
}

export function withoutSlash(path: string): string {
  return path.endsWith('/') ? path.slice(0, -1) : path
}

function limitOf({ blockSeconds, intervalSeconds, rate }: QuotaRule): RateLimit {
  return {
    capacity: Math.max(1, Math.round(rate)),
    tokensPerMs: rate / (intervalSeconds * 1000),
    blockMs: blockSeconds * 1000,
  }
}
