/**
 * Rate-limit quotas: the number of requests per interval that the core accepts from one caller.
 *
 * A rule is global, for a mount, or for a path or prefix below a mount. Only the most specific rule applies to a request
 * (`quota-rule.ts`), with one bucket for each address (`quota-buckets.ts`). Quotas are checked before the token, so a flood of invalid
 * tokens costs no lookups.
 *
 * Promises. Without rules a request pays for one comparison. Callers do not share buckets, except with `group_by = none`. Memory is
 * bounded for any number of addresses. Rules and blocks (`stored-blocks.ts`) are durable. Counts are not, because each request would be
 * a write: after a restart or a change of the active server a caller that is not blocked may send one more burst, the requests of one
 * interval.
 *
 * Assumes that the address is the one that a server has seen. Callers with an unknown address share one bucket.
 *
 * Failure modes. More callers than buckets: the fullest of the least recently used buckets is evicted, and its caller starts with a full
 * one. The machine's clock jumps: times are monotonic. A mount moves: its rules move too. A mount is disabled: its rules have no effect,
 * and the next change removes them.
 */
import * as v from 'valibot'
import { Rejection } from '../../engines/framework/engine.ts'
import { Refusal } from '../../platform/errors.ts'
import { callerNetwork } from '../../engines/framework/cidr.ts'
import type { ResolvedPath } from '../mounts/mounts.ts'
import { StoredSetting } from '../settings/stored-setting.ts'
import { StoredBlocks, type StoredBlocksOptions } from './stored-blocks.ts'
import { QuotaBuckets, type RateDecision } from './quota-buckets.ts'
import { type QuotaRule, QuotaTable, ruleSchema, withoutSlash } from './quota-rule.ts'

/** All rules are one entry, and a request compares the prefixes of its mount one by one. */
export const RULES_MAX = 1000
/** Quotas with a metric label of their own. */
const METRIC_LABELS_MAX = 100
const OTHER = 'other'

/** Paths that operators and health checks need during a flood. */
const EXEMPT = [
  'sys/generate-recovery-token/attempt',
  'sys/generate-recovery-token/update',
  'sys/generate-root/attempt',
  'sys/generate-root/update',
  'sys/health',
  'sys/seal-status',
  'sys/unseal',
]

const configSchema = v.object({
  /** A trailing `*` makes a path a prefix. */
  exemptPaths: v.array(v.string()),
  auditsRefusals: v.boolean(),
  /** Whether answers have headers with the limit. */
  tellsLimits: v.boolean(),
})

export type QuotaConfig = v.InferOutput<typeof configSchema>

/** The decision of a quota about a request. */
export interface QuotaDecision {
  readonly headers: Readonly<Record<string, string>>
  readonly refusal: Refusal | undefined
  /** Whether the refusal is recorded in the audit log. */
  readonly isAudited: boolean
  /** Present if the request has blocked its caller: resolves when the block is durable. */
  readonly blocked?: Promise<void>
}

interface CompiledRules {
  readonly rules: readonly QuotaRule[]
  readonly table: QuotaTable
}

export interface QuotaOptions extends StoredBlocksOptions {
  readonly isMounted: (uuid: string) => boolean
  /** Monotonic time in milliseconds. */
  readonly elapsed: () => number
}

export class Quotas {
  readonly #options: QuotaOptions
  readonly #rules: StoredSetting<QuotaRule[]>
  readonly #config: StoredSetting<QuotaConfig>
  readonly #buckets = new QuotaBuckets()
  readonly #blocks: StoredBlocks
  readonly #exceeded = new Map<string, number>()
  #compiled: CompiledRules = { rules: [], table: new QuotaTable([]) }

  constructor(options: QuotaOptions) {
    this.#options = options
    this.#blocks = new StoredBlocks(options)
    const fallback = { exemptPaths: [...EXEMPT], auditsRefusals: false, tellsLimits: false }
    this.#rules = new StoredSetting(options.storage, 'core/quotas/rate-limit', v.array(ruleSchema), [])
    this.#config = new StoredSetting(options.storage, 'core/quotas/config', configSchema, fallback)
  }

  get isOn(): boolean {
    return this.#rules.value.length > 0
  }

  get config(): QuotaConfig {
    return this.#config.value
  }

  /** The rules whose mount is enabled. */
  get rules(): readonly QuotaRule[] {
    return this.#withEnabledMount(this.#rules.value)
  }

  /** Number of buckets. */
  get bucketCount(): number {
    return this.#buckets.size
  }

  find(name: string): QuotaRule | undefined {
    return this.rules.find((rule) => rule.name === name)
  }

  /** Counts a request. Undefined if no quota applies. */
  take(path: string, resolved: ResolvedPath | undefined, remote: string | undefined): QuotaDecision | undefined {
    const active = this.#table.find(resolved?.mount.record.uuid, resolved?.rest ?? '')
    if (!active || this.#isExempt(path)) return undefined
    const { limit, rule } = active
    const caller = rule.groupBy === 'none' ? '*' : remote === undefined ? '' : callerNetwork(remote)
    const key = `${rule.name} ${rule.revision} ${caller}`
    const decision = this.#buckets.take(key, limit, this.#options.elapsed(), this.#storedBlockMs)
    if (!decision.isAllowed) this.#count(rule.name)
    const message = `request path ${JSON.stringify(path)}: rate limit quota exceeded`
    return {
      headers: this.#headers(decision, limit.capacity),
      refusal: decision.isAllowed ? undefined : new Refusal('too_many', message),
      isAudited: this.#config.value.auditsRefusals,
      ...(decision.isNewlyBlocked && { blocked: this.#blocks.add(key, limit.blockMs) }),
    }
  }

  readonly #storedBlockMs = (key: string) => this.#blocks.remainingMs(key)

  #headers({ isAllowed, remaining, resetMs, retryMs }: RateDecision, capacity: number): Record<string, string> {
    return {
      ...(this.#config.value.tellsLimits && {
        'X-Ratelimit-Limit': String(capacity),
        'X-Ratelimit-Remaining': String(remaining),
        'X-Ratelimit-Reset': String(Math.ceil(resetMs / 1000)),
      }),
      ...(!isAllowed && { 'Retry-After': String(Math.max(1, Math.ceil(retryMs / 1000))) }),
    }
  }

  #isExempt(path: string): boolean {
    const bare = withoutSlash(path)
    return this.#config.value.exemptPaths.some((each) =>
      each.endsWith('*') ? path.startsWith(each.slice(0, -1)) : each === bare,
    )
  }

  get #table(): QuotaTable {
    const rules = this.#rules.value
    if (this.#compiled.rules !== rules) this.#compiled = { rules, table: new QuotaTable(rules) }
    return this.#compiled.table
  }

  #withEnabledMount(rules: readonly QuotaRule[]): QuotaRule[] {
    return rules.filter(({ mount }) => mount === '' || this.#options.isMounted(mount))
  }

  /** Writes a rule by its name. Throws a Rejection (400) if another rule applies to the same path. */
  async write(rule: Omit<QuotaRule, 'revision'>): Promise<void> {
    await this.#rules.change((pending) => {
      const rules = this.#withEnabledMount(pending)
      const duplicate = rules.find((each) => hasSamePath(each, rule) && each.name !== rule.name)
      if (duplicate) {
        throw new Rejection(
          400,
          `quota rule with similar properties exists under the name ${JSON.stringify(duplicate.name)}`,
        )
      }
      const before = rules.find(({ name }) => name === rule.name)
      if (!before && rules.length >= RULES_MAX) throw new Rejection(400, `at most ${RULES_MAX} quotas can be set`)
      const revision = (before?.revision ?? 0) + 1
      return [...rules.filter((each) => each !== before), { ...rule, revision }]
    })
  }

  async remove(name: string): Promise<void> {
    await this.#rules.change((pending) => this.#withEnabledMount(pending).filter((each) => each.name !== name))
  }

  async configure(change: Partial<QuotaConfig>): Promise<void> {
    await this.#config.change((pending) => ({ ...pending, ...change }))
  }

  #count(name: string): void {
    const label = this.#exceeded.has(name) || this.#exceeded.size < METRIC_LABELS_MAX ? name : OTHER
    this.#exceeded.set(label, (this.#exceeded.get(label) ?? 0) + 1)
  }

  /** Refused requests by name of the quota. Removed quotas count as `other`. */
  exceeded(): { readonly name: string; readonly count: number }[] {
    const names = new Set(this.#rules.value.map(({ name }) => name))
    for (const [name, count] of this.#exceeded) {
      if (name === OTHER || names.has(name)) continue
      this.#exceeded.delete(name)
      this.#exceeded.set(OTHER, (this.#exceeded.get(OTHER) ?? 0) + count)
    }
    return [...this.#exceeded].map(([name, count]) => ({ name, count }))
  }
}

function hasSamePath(a: Pick<QuotaRule, 'mount' | 'suffix'>, b: Pick<QuotaRule, 'mount' | 'suffix'>): boolean {
  return a.mount === b.mount && a.suffix.toLowerCase() === b.suffix.toLowerCase()
}
