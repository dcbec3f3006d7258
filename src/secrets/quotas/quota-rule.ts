/** A rate-limit quota as it is kept, and the search for the one that a request counts against. */
import * as v from 'valibot'
import type { Limit } from './quota-buckets.ts'

const GROUPS = ['ip', 'none'] as const

/** By what callers are told apart: their address, or not at all. */
export type GroupBy = (typeof GROUPS)[number]

export function isGroupBy(text: string): text is GroupBy {
  return GROUPS.some((each) => each === text)
}

export const ruleSchema = v.object({
  name: v.string(),
  /** UUID of the mount that it is for, which may move; empty: of everything. */
  mount: v.string(),
  /** Path below the mount, without a slash at its end; with `*` there it is a prefix. Empty: all of the mount. */
  suffix: v.string(),
  /** Requests in an interval. */
  rate: v.number(),
  intervalSeconds: v.number(),
  blockSeconds: v.number(),
  groupBy: v.picklist(GROUPS),
  inheritable: v.boolean(),
  /** Rises with each change: callers are counted anew then. */
  revision: v.number(),
})

export type QuotaRule = v.InferOutput<typeof ruleSchema>

/** A rule with what each request needs of it. */
export interface ActiveRule {
  readonly rule: QuotaRule
  readonly limit: Limit
}

interface MountRules {
  whole: ActiveRule | undefined
  readonly exact: Map<string, ActiveRule>
  /** The longest first. */
  readonly prefixes: { readonly prefix: string; readonly active: ActiveRule }[]
}

/**
 * Finds the most specific rule of a path: the path itself, the longest prefix, the mount, everything. Upper and lower case
 * are alike below a mount, and so is a slash at the end: an engine may take both for the same thing (user names), and then
 * a quota is not passed by writing it differently.
 */
export class QuotaTable {
  #everything: ActiveRule | undefined
  readonly #mounts = new Map<string, MountRules>()

  constructor(rules: readonly QuotaRule[]) {
    for (const rule of rules) this.#add({ rule, limit: limitOf(rule) })
    for (const { prefixes } of this.#mounts.values()) prefixes.sort((a, b) => b.prefix.length - a.prefix.length)
  }

  #add(active: ActiveRule): void {
    const { mount, suffix } = active.rule
    if (mount === '') {
      this.#everything = active
      return
    }
    const rules: MountRules = this.#mounts.get(mount) ?? { whole: undefined, exact: new Map(), prefixes: [] }
    this.#mounts.set(mount, rules)
    if (suffix === '') rules.whole = active
    else if (suffix.endsWith('*')) rules.prefixes.push({ prefix: suffix.slice(0, -1).toLowerCase(), active })
    else rules.exact.set(suffix.toLowerCase(), active)
  }

  /** `mount` is the UUID of the mount that a request is for, `rest` its path below it. */
  find(mount: string | undefined, rest: string): ActiveRule | undefined {
    const rules = mount === undefined ? undefined : this.#mounts.get(mount)
    return (rules && below(rules, rest)) ?? this.#everything
  }
}

function below({ exact, prefixes, whole }: MountRules, rest: string): ActiveRule | undefined {
  if (exact.size === 0 && prefixes.length === 0) return whole
  const path = rest.toLowerCase()
  const found = exact.get(withoutSlash(path)) ?? prefixes.find(({ prefix }) => path.startsWith(prefix))?.active
  return found ?? whole
}

export function withoutSlash(path: string): string {
  return path.endsWith('/') ? path.slice(0, -1) : path
}

function limitOf({ blockSeconds, intervalSeconds, rate }: QuotaRule): Limit {
  return {
    capacity: Math.max(1, Math.round(rate)),
    tokensPerMs: rate / (intervalSeconds * 1000),
    blockMs: blockSeconds * 1000,
  }
}
