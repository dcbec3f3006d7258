/** The engine behind `auth/token/`. */
import { type Engine, path } from '../engines/engine.ts'
import { Rejection } from '../engines/engine.ts'
import type { SecretsCore } from './core.ts'
import type { TokenEntry } from './token-store.ts'

export function tokenEngine(core: SecretsCore): Engine {
  return {
    type: 'token',
    description: 'token based credentials',
    kind: 'auth',
    isSingle: true,
    paths: [
      path({
        pattern: 'lookup-self',
        summary: 'What the calling token is and may do',
        fields: {},
        read(_input, { caller, nowMs, token }) {
          const entry = core.open.tokens.findByHash(caller.tokenHash, nowMs)
          if (!entry) throw new Rejection(403, 'permission denied')
          return { data: { ...lookedUp(entry, nowMs), id: token } }
        },
      }),
    ],
  }
}

function lookedUp(entry: TokenEntry, nowMs: number): Record<string, unknown> {
  const { expiresAtMs } = entry
  return {
    accessor: entry.accessor,
    creation_time: Math.floor(entry.createdAtMs / 1000),
    creation_ttl: entry.ttlSeconds,
    display_name: entry.displayName,
    entity_id: entry.entityId,
    expire_time: expiresAtMs === undefined ? null : new Date(expiresAtMs).toISOString(),
    explicit_max_ttl: entry.explicitMaxTtlSeconds,
    meta: entry.meta,
    num_uses: entry.usesLeft,
    orphan: entry.parent === '',
    path: entry.path,
    policies: entry.policies,
    ttl: expiresAtMs === undefined ? 0 : Math.max(0, Math.floor((expiresAtMs - nowMs) / 1000)),
    type: entry.type,
  }
}
