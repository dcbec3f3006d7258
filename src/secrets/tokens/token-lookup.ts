/** The answer to a token lookup, and the list of accessors. */
import { nextTurn } from '../../platform/scheduler.ts'
import type { Reply } from '../../engines/framework/engine.ts'
import type { TokenServices } from './token-services.ts'
import { ROOT_PATH, type TokenEntry, tokenPaths } from './token-entry.ts'

/** Entries read and decrypted in one turn of the event loop. */
const PAGE_ENTRIES = 32

/** `id` is the token, or empty where it must not be shown. The parent is left out: its hash would link tokens to each other. */
export function tokenData(core: TokenServices, entry: TokenEntry, id: string, nowMs: number): Record<string, unknown> {
  const identityPolicies = core.open.identity.rights(entry.entityId)?.policies ?? []
  const { boundCidrs, createdAtMs, expiresAtMs, periodSeconds, renewedAtMs, role } = entry
  // A root token of the core itself has no lease, so the fields of leases are left out.
  const hasLease = entry.path !== ROOT_PATH
  return {
    accessor: entry.accessor,
    ...(boundCidrs.length > 0 && { bound_cidrs: boundCidrs }),
    creation_time: Math.floor(createdAtMs / 1000),
    creation_ttl: entry.ttlSeconds,
    display_name: entry.displayName,
    entity_id: entry.entityId,
    expire_time: expiresAtMs === undefined ? null : timeText(expiresAtMs),
    explicit_max_ttl: entry.explicitMaxTtlSeconds,
    id,
    ...(identityPolicies.length > 0 && { identity_policies: identityPolicies }),
    ...(hasLease && { issue_time: timeText(createdAtMs) }),
    ...(renewedAtMs !== undefined && {
      last_renewal: timeText(renewedAtMs),
      last_renewal_time: Math.floor(renewedAtMs / 1000),
    }),
    meta: entry.meta,
    num_uses: entry.usesLeft,
    orphan: entry.parent === '',
    path: entry.path,
    ...(periodSeconds > 0 && { period: periodSeconds }),
    policies: entry.policies,
    ...(hasLease && { renewable: entry.renewable }),
    ...(role !== '' && { role }),
    ttl: expiresAtMs === undefined ? 0 : Math.max(0, Math.floor((expiresAtMs - nowMs) / 1000)),
    type: entry.type,
  }
}

function timeText(ms: number): string {
  return new Date(ms).toISOString()
}

/** Accessors of all tokens in the order of their hashes: those after `after`, at most `limit` (0 for all). */
export async function listAccessors(core: TokenServices, after: string, limit: number): Promise<Reply> {
  const { tokens } = core.open
  const keys: string[] = []
  // `0` sorts after the slash, so this is after every token of that accessor.
  let from = after === '' ? '' : `${tokenPaths.accessorOf(tokens.hashOf(after)).slice(0, -1)}0`
  for (;;) {
    const paths = tokens.storage.paths(tokenPaths.accessors, { after: from, limit: PAGE_ENTRIES })
    for (const path of paths) {
      const entry = tokens.peek(path.slice(path.lastIndexOf('/') + 1))
      if (entry && entry.usesLeft >= 0 && !entry.isLeaving) keys.push(entry.accessor)
      if (limit > 0 && keys.length >= limit) return { data: { keys } }
    }
    const last = paths.at(-1)
    if (last === undefined) return { data: { keys } }
    from = last
    await nextTurn()
  }
}
