/** The commands for replication. */
import type { TableRow } from './framework/command-shape.ts'

export const DR_TABLE: readonly TableRow[] = [
  {
    name: 'operator dr status',
    summary: 'Show how this cluster takes part in replication for disaster recovery',
    load: () => import('./commands/operator/dr/status.ts'),
  },
  {
    name: 'operator dr enable',
    summary: 'Make this cluster a DR primary',
    load: () => import('./commands/operator/dr/enable.ts'),
  },
  {
    name: 'operator dr token',
    summary: 'Print an activation token for a DR secondary',
    load: async () => ({ command: (await import('./commands/operator/dr/enable.ts')).token }),
  },
  {
    name: 'operator dr join',
    summary: 'Make this server the DR secondary of a primary',
    load: () => import('./commands/operator/dr/join.ts'),
  },
  {
    name: 'operator dr switch',
    summary: 'Exchange the roles of a DR primary and its secondary',
    load: () => import('./commands/operator/dr/switch.ts'),
  },
  {
    name: 'operator dr demote',
    summary: 'Make this DR primary a secondary',
    load: async () => ({ command: (await import('./commands/operator/dr/enable.ts')).demote }),
  },
  {
    name: 'operator dr disable',
    summary: 'End DR replication of this cluster',
    load: async () => ({ command: (await import('./commands/operator/dr/enable.ts')).disable }),
  },
  {
    name: 'operator dr promote',
    summary: 'Make this DR secondary the primary',
    load: () => import('./commands/operator/dr/promote.ts'),
  },
  {
    name: 'operator dr drill',
    summary: 'Promote a copy of this DR secondary, read from it, and remove it',
    load: () => import('./commands/operator/dr/drill.ts'),
  },
  {
    name: 'operator dr failover',
    summary: 'Walk through a failover to this DR secondary',
    load: () => import('./commands/operator/dr/failover.ts'),
  },
]
