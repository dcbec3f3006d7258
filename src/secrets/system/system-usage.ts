/**
 * `sys/internal/counters/` and `sys/version-history`: what is stored in the core, for operators. `usage` reads each token and the path of
 * every other entry, in slices; other requests are served meanwhile, so the counts are not of one moment.
 */
import type { Storage } from '../../storage/barrier/storage.ts'
import { path, type Path } from '../../engines/framework/engine.ts'
import { RECORD_COST, runSliced, type SlicedWork } from '../../platform/sliced-work.ts'
import { LEASES_PREFIX, leasePaths } from '../leases/lease-entry.ts'
import { IDENTITY_PREFIX, identityPaths } from '../identity/identity-record.ts'
import type { Mount, MountTable } from '../mounts/mounts.ts'
import type { PolicyStore } from '../policies/policy-store.ts'
import type { Quotas } from '../quotas/quotas.ts'
import type { AuditTrail } from '../audit/audit.ts'
import { hasExpired, parseEntry, ROOT_PATH, TOKENS_PREFIX } from '../tokens/token-entry.ts'
import type { OpenStores, WithClock } from './core-parts.ts'
import { nextTurn } from '../../platform/scheduler.ts'
import { storedVersions } from './version-history.ts'

/** Paths that are read in one step. */
const PAGE_PATHS = 500
/** Limit of the names in a count by name. */
const NAMES_MAX = 1000
/** Stands for all names beyond `NAMES_MAX`. Not a valid policy name. */
const OTHER = '(other)'

type UsageParts = WithClock &
  OpenStores<{
    readonly storage: Storage
    readonly mounts: MountTable
    readonly policies: Pick<PolicyStore, 'names'>
    readonly quotas: Pick<Quotas, 'rules'>
    readonly auditing: { readonly trail: Pick<AuditTrail, 'states'> }
  }>

export function usagePaths(core: UsageParts): Path[] {
  return [
    path({
      pattern: 'internal/counters/usage',
      summary: 'Count tokens, entities, leases, policies and entries of each mount',
      sudo: true,
      fields: {},
      read: async (_input, call) => ({ data: await runSliced(usageOf(core), call) }),
    }),
  ]
}

function* usageOf(core: UsageParts): SlicedWork<Record<string, unknown>> {
  const { auditing, mounts, policies, quotas, storage } = core.open
  const tokens = yield* countTokens(core)
  const leases = yield* countLeases(core)
  const mountUsage: Record<string, unknown>[] = []
  // A copy: mounts may be enabled and disabled meanwhile.
  for (const mount of mounts.all()) {
    if (!mount.isOwn) mountUsage.push(yield* usageOfMount(mount, leases.byMount))
  }
  return {
    entities: yield* countPaths(storage, IDENTITY_PREFIX + identityPaths.entities),
    entity_aliases: yield* countPaths(storage, IDENTITY_PREFIX + identityPaths.aliases),
    groups: yield* countPaths(storage, IDENTITY_PREFIX + identityPaths.groups),
    tokens,
    leases: { total: leases.total, irrevocable: leases.irrevocable },
    mounts: mountUsage,
    policies: policies.names('', core.now()).length,
    quotas: quotas.rules.length,
    audit_devices: auditing.trail.states.length,
  }
}

function* countPaths(storage: Storage, prefix: string): SlicedWork<number> {
  let count = 0
  for (const page of storage.pages(prefix, PAGE_PATHS)) {
    count += page.length
    yield page.length
  }
  return count
}

/** Valid service tokens. Batch tokens are not stored. */
function* countTokens(core: UsageParts): SlicedWork<Record<string, unknown>> {
  const { mounts, storage } = core.open
  const counts = { service: 0, root: 0, orphan: 0, periodic: 0, without_expiry: 0 }
  const [byPolicy, byMount] = [new NameCounts(), new NameCounts()]
  for (const page of storage.pages(`${TOKENS_PREFIX}id/`, PAGE_PATHS)) {
    for (const at of page) {
      const bytes = storage.get(at)
      yield RECORD_COST
      const entry = bytes && parseEntry(bytes)
      if (!entry || hasExpired(entry, core.now()) || entry.isLeaving) continue
      counts.service++
      counts.root += Number(entry.policies.includes('root'))
      counts.orphan += Number(entry.parent === '' && entry.path !== ROOT_PATH)
      counts.periodic += Number(entry.periodSeconds > 0)
      counts.without_expiry += Number(entry.expiresAtMs === undefined)
      for (const policy of entry.policies) byPolicy.add(policy)
      byMount.add(entry.login ? (mounts.byUuid(entry.login.mount)?.record.path ?? OTHER) : 'auth/token/')
    }
  }
  return { ...counts, by_policy: byPolicy.all(), by_auth_method: byMount.all() }
}

/** `byMount`: by the UUID of the mount. */
function* countLeases({ open }: UsageParts): SlicedWork<{
  readonly total: number
  readonly irrevocable: number
  readonly byMount: ReadonlyMap<string, number>
}> {
  const storage = open.storage.below(LEASES_PREFIX)
  const byMount = new Map<string, number>()
  let total = 0
  for (const page of storage.pages(leasePaths.expiries, PAGE_PATHS)) {
    total += page.length
    for (const at of page) {
      const uuid = at.slice(leasePaths.expiries.length, at.indexOf('/', leasePaths.expiries.length))
      byMount.set(uuid, (byMount.get(uuid) ?? 0) + 1)
    }
    yield page.length
  }
  return { total, irrevocable: yield* countPaths(storage, leasePaths.irrevocable), byMount }
}

function* usageOfMount(
  { engine, record, storage, viewScope }: Mount,
  leases: ReadonlyMap<string, number>,
): SlicedWork<Record<string, unknown>> {
  const { counted } = engine
  let [entries, items] = [0, 0]
  try {
    for (const page of storage.pages('', PAGE_PATHS)) {
      entries += page.length
      if (counted) items += page.filter((at) => isBelow(at, counted.folder)).length
      yield page.length
    }
  } catch (error) {
    // The mount was disabled during the count. If the core was sealed, the next read of `storage` of the core throws.
    if (!viewScope.isRevoked) throw error
  }
  return {
    path: record.path,
    type: record.type,
    entries,
    ...(counted && { [counted.noun]: items }),
    leases: leases.get(record.uuid) ?? 0,
  }
}

/** Directly below the folder: entries of versions are below the entry of their secret. */
function isBelow(at: string, folder: string): boolean {
  return at.startsWith(folder) && !at.includes('/', folder.length)
}

/** Counts by name, with a bounded number of names. */
class NameCounts {
  readonly #counts = new Map<string, number>()

  add(name: string): void {
    const counted = this.#counts.has(name) || this.#counts.size < NAMES_MAX ? name : OTHER
    this.#counts.set(counted, (this.#counts.get(counted) ?? 0) + 1)
  }

  /** The most frequent first. */
  all(): Record<string, number> {
    return Object.fromEntries([...this.#counts].sort(([, a], [, b]) => b - a))
  }
}

/** Entries per time slice of a few milliseconds */
const COUNTED_AT_ONCE = 5000

export function counterPaths(core: OpenStores<{ readonly storage: Storage }>): Path[] {
  return [
    path({
      pattern: 'version-history',
      summary: 'List the versions of this program that have served this core',
      fields: {},
      list() {
        const all = storedVersions(core.open.storage)
        const entries = all.map(({ installedAt, version }, at): [string, object] => {
          return [
            version,
            { build_date: '', previous_version: all[at - 1]?.version ?? null, timestamp_installed: installedAt },
          ]
        })
        return { data: { keys: all.map(({ version }) => version), key_info: Object.fromEntries(entries) } }
      },
    }),
    path({
      pattern: 'internal/counters/tokens',
      summary: 'Count the service tokens',
      fields: {},
      async read() {
        return { data: { counters: { service_tokens: { total: await countStoredTokens(core.open.storage) } } } }
      },
    }),
  ]
}

/** Includes expired tokens that were not removed yet. Throws while the core is sealed. */
export async function countStoredTokens(storage: Storage): Promise<number> {
  const prefix = `${TOKENS_PREFIX}id/`
  let total = 0
  for (const page of storage.pages(prefix, COUNTED_AT_ONCE)) {
    total += page.length
    await nextTurn()
  }
  return total
}
