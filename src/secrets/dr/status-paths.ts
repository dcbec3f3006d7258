/** How replication stands: open to everybody, in any state, as clients and monitors ask before they know what a server is. */
import { path, type Path } from '../../engines/framework/engine.ts'
import { type ReplicationParts, sideOf } from './dr-parts.ts'

const DISABLED = { mode: 'disabled' }

export function replicationStatusPaths(core: ReplicationParts): Path[] {
  const dr = async () => (await sideOf(core)?.dr.status()) ?? DISABLED
  const rows = [
    {
      pattern: 'replication/status',
      summary: 'How this cluster takes part in replication',
      read: async () => ({ data: { dr: await dr(), performance: DISABLED } }),
    },
    {
      pattern: 'replication/dr/status',
      summary:
        'How this cluster takes part in replication for disaster recovery: role, progress, lag, and the other side',
      read: async () => ({ data: await dr() }),
    },
    {
      pattern: 'replication/performance/status',
      summary: 'Replication to clusters that answer requests, too: there is none',
      read: async () => ({ data: DISABLED }),
    },
  ]
  return rows.map((row) => path({ ...row, unauthenticated: true, whileSealed: true, onSecondary: true, fields: {} }))
}
