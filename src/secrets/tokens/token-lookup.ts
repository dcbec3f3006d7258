/** What a token's holder, and whoever may ask, is told about it; and the list of all of them. */
import { nextTurn } from '../../platform/scheduler.ts'
import type { Reply } from '../../engines/framework/engine.ts'
import type { TokenParts } from './token-parts.ts'
import { ROOT_PATH, type TokenEntry, tokenPaths } from './token-entry.ts'

/** Read, and so decrypted, in one turn of the event loop. */
const PAGE = 32

/** `id` is the token, empty where it must not be shown. The parent is not told: its name would say too much. */
export function lookedUp(core: TokenParts, entry: TokenEntry, id: string, nowMs: number): Record<string, unknown> {
  const byEntity = core.open.identity.rights(entry.entityId)?.policies ?? []
  const { boundCidrs, createdAtMs, expiresAtMs, periodSeconds, renewedAtMs, role } = entry
  // The first root token has no lease, and so nothing that is known of leases.
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
    ...(byEntity.length > 0 && { identity_policies: byEntity }),
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

/** Accessors of all tokens, in the order of their hashes; those behind `after`, at most `limit` (0 for all). */
export async function listAccessors(core: TokenParts, after: string, limit: number): Promise<Reply> {
  const { tokens } = core.open
  const keys: string[] = []
  // Behind every token of that accessor: `0` sorts behind the slash.
  let from = after === '' ? '' : `${tokenPaths.accessorOf(tokens.hashOf(after)).slice(0, -1)}0`
  for (;;) {
    const paths = tokens.storage.paths(tokenPaths.accessors, { after: from, limit: PAGE })
    for (const path of paths) {
      const entry = tokens.glance(path.slice(path.lastIndexOf('/') + 1))
      if (entry && entry.usesLeft >= 0 && !entry.isLeaving) keys.push(entry.accessor)
      if (limit > 0 && keys.length >= limit) return { data: { keys } }
    }
    const last = paths.at(-1)
    if (last === undefined) return { data: { keys } }
    from = last
    await nextTurn()
  }
}
