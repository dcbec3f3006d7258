/**
 * Rate-limit quotas: how many requests of one caller the core takes in a time.
 *
 * A rule is for everything, for a mount, or for a path or a prefix below one; a request counts against the most specific
 * alone (`quota-rule.ts`), in a bucket of its own for each address (`quota-buckets.ts`). It is looked at before the token
 * is, so that a flood of wrong tokens costs no search for them.
 *
 * Promises. Without a rule a request pays for one comparison. No caller takes requests from another one's bucket, except
 * by `group_by = none`. Memory is bounded however many addresses come. Rules are durable; what was counted is not, and a
 * restart begins anew.
 *
 * Assumes that the address is the one that a server saw itself. Where nothing is known of it, the caller shares one bucket
 * with all others of whom nothing is known.
 *
 * What can go wrong. More callers than there are buckets: the one that asked least among the longest silent begins anew. The
 * clock of the machine jumps: times are measured by one that nobody sets. A mount moves: its rules go with it; it is
 * disabled: they rest, and are removed with the next change.
 */
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { Refusal } from '../../platform/errors.ts'
import { callerNetwork } from '../../engines/framework/client-address.ts'
import type { ResolvedPath } from '../mounts/mounts.ts'
import { StoredSetting } from '../settings/stored-setting.ts'
import { QuotaBuckets, type Taken } from './quota-buckets.ts'
import { type QuotaRule, QuotaTable, ruleSchema, withoutSlash } from './quota-rule.ts'

/** All of them are one entry, and those of a mount are looked through for a request. */
export const RULES_MAX = 1000
/** Quotas with a figure of their own. */
const COUNTED_MAX = 100
const OTHER = 'other'

/** What an operator must reach during a flood, and what is asked of a server that is in trouble. */
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
  /** With `*` at its end a prefix. */
  exemptPaths: v.array(v.string()),
  auditsRefusals: v.boolean(),
  tellsLimits: v.boolean(),
})

export type QuotaConfig = v.InferOutput<typeof configSchema>

/** What a request is told of its quota, and whether it is over. */
export interface Verdict {
  readonly headers: Readonly<Record<string, string>>
  readonly refusal: Refusal | undefined
  /** Whether the audit log is to have the refusal. */
  readonly isAudited: boolean
}

interface Compiled {
  readonly of: readonly QuotaRule[]
  readonly table: QuotaTable
}

export interface QuotaOptions {
  /** All of the barrier. */
  readonly storage: Storage
  readonly isMounted: (uuid: string) => boolean
  /** Milliseconds that passed since some moment. */
  readonly elapsed: () => number
}

export class Quotas {
  readonly #options: QuotaOptions
  readonly #rules: StoredSetting<QuotaRule[]>
  readonly #config: StoredSetting<QuotaConfig>
  readonly #buckets = new QuotaBuckets()
  readonly #exceeded = new Map<string, number>()
  #compiled: Compiled = { of: [], table: new QuotaTable([]) }

  constructor(options: QuotaOptions) {
    this.#options = options
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

  /** Those whose mount is there. */
  get rules(): readonly QuotaRule[] {
    return this.#alive(this.#rules.value)
  }

  /** Callers that are counted at this moment. */
  get counted(): number {
    return this.#buckets.size
  }

  find(name: string): QuotaRule | undefined {
    return this.rules.find((rule) => rule.name === name)
  }

  /** Counts a request. Undefined where no quota is for it. */
  take(path: string, place: ResolvedPath | undefined, remote: string | undefined): Verdict | undefined {
    const active = this.#table.find(place?.mount.record.uuid, place?.rest ?? '')
    if (!active || this.#isExempt(path)) return undefined
    const { limit, rule } = active
    const caller = rule.groupBy === 'none' ? '*' : remote === undefined ? '' : callerNetwork(remote)
    const taken = this.#buckets.take(`${rule.name} ${rule.revision} ${caller}`, limit, this.#options.elapsed())
    if (!taken.isAllowed) this.#count(rule.name)
    const why = `request path ${JSON.stringify(path)}: rate limit quota exceeded`
    return {
      headers: this.#headers(taken, limit.capacity),
      refusal: taken.isAllowed ? undefined : new Refusal('too_many', why),
      isAudited: this.#config.value.auditsRefusals,
    }
  }

  #headers({ isAllowed, remaining, resetMs, retryMs }: Taken, capacity: number): Record<string, string> {
    const told = this.#config.value.tellsLimits
    return {
      ...(told && {
        'X-Ratelimit-Limit': String(capacity),
        'X-Ratelimit-Remaining': String(remaining),
        'X-Ratelimit-Reset': String(Math.ceil(resetMs / 1000)),
      }),
      ...(!isAllowed && { 'Retry-After': String(Math.max(1, Math.ceil(retryMs / 1000))) }),
    }
  }

  #isExempt(path: string): boolean {
    const asked = withoutSlash(path)
    return this.#config.value.exemptPaths.some((each) =>
      each.endsWith('*') ? path.startsWith(each.slice(0, -1)) : each === asked,
    )
  }

  get #table(): QuotaTable {
    const rules = this.#rules.value
    if (this.#compiled.of !== rules) this.#compiled = { of: rules, table: new QuotaTable(rules) }
    return this.#compiled.table
  }

  #alive(rules: readonly QuotaRule[]): QuotaRule[] {
    return rules.filter(({ mount }) => mount === '' || this.#options.isMounted(mount))
  }

  /** Puts a rule in the place of that of its name. Throws a Rejection where another one is for the same requests. */
  async write(rule: Omit<QuotaRule, 'revision'>): Promise<void> {
    await this.#rules.change((pending) => {
      const rules = this.#alive(pending)
      const like = rules.find((each) => isAlike(each, rule) && each.name !== rule.name)
      if (like) {
        throw new Rejection(
          400,
          `quota rule with similar properties exists under the name ${JSON.stringify(like.name)}`,
        )
      }
      const before = rules.find(({ name }) => name === rule.name)
      if (!before && rules.length >= RULES_MAX) throw new Rejection(400, `at most ${RULES_MAX} quotas can be set`)
      const revision = (before?.revision ?? 0) + 1
      return [...rules.filter((each) => each !== before), { ...rule, revision }]
    })
  }

  async remove(name: string): Promise<void> {
    await this.#rules.change((pending) => this.#alive(pending).filter((each) => each.name !== name))
  }

  async configure(change: Partial<QuotaConfig>): Promise<void> {
    await this.#config.change((pending) => ({ ...pending, ...change }))
  }

  #count(name: string): void {
    const counted = this.#exceeded.has(name) || this.#exceeded.size < COUNTED_MAX ? name : OTHER
    this.#exceeded.set(counted, (this.#exceeded.get(counted) ?? 0) + 1)
  }

  /** Requests that were refused, by the name of the quota; those of quotas that are gone are `other`. */
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

function isAlike(a: Pick<QuotaRule, 'mount' | 'suffix'>, b: Pick<QuotaRule, 'mount' | 'suffix'>): boolean {
  return a.mount === b.mount && a.suffix.toLowerCase() === b.suffix.toLowerCase()
}
