/** Replication metrics that are known without waiting. */
import type { Primary } from './primary/primary.ts'
import type { Secondary } from './secondary/secondary.ts'
import type { ReplicaStore } from '../storage/store/replica.ts'

export interface SecondaryMetrics {
  readonly isConnected: boolean
  readonly phase: string
  /** Connections to a primary since the start. */
  readonly connections: number
  /** Undefined before the first message of the primary. */
  readonly lagEntries: number | undefined
  readonly lagSeconds: number | undefined
  readonly copiedEntries: number
  readonly copiedBytes: number
}

export interface PrimaryMetrics {
  /** `off`, `on` or `degraded`. */
  readonly sync: string
  /** Commits that are durable here and wait for a secondary. */
  readonly waiting: number
  readonly secondaries: readonly {
    readonly id: string
    readonly isConnected: boolean
    readonly lagEntries: number
    readonly lagSeconds: number
    readonly inFlightBytes: number
    /** Its last message had a valid proof of membership. */
    readonly isAuthenticated: boolean
  }[]
}

export interface ReplicationMetrics {
  readonly mode: 'disabled' | 'primary' | 'secondary'
  readonly epoch: number
  /** Sequence of the newest commit. */
  readonly position: number
  readonly isWhole: boolean
  readonly isFenced: boolean
  readonly secondary: SecondaryMetrics | undefined
  readonly primary: PrimaryMetrics | undefined
}

export function replicationMetrics(
  mode: ReplicationMetrics['mode'],
  store: ReplicaStore,
  { primary, secondary }: { readonly primary: Primary | undefined; readonly secondary: Secondary | undefined },
): ReplicationMetrics {
  const position = store.position().sequence
  return {
    mode,
    epoch: store.epoch,
    position,
    isWhole: store.isWhole,
    isFenced: store.role === 'fenced',
    secondary: secondary && secondaryMetrics(secondary),
    primary: primary && primaryMetrics(primary, position),
  }
}

function secondaryMetrics(secondary: Secondary): SecondaryMetrics {
  const { isConnected, phase, connections, lagEntries, lagSeconds, copied } = secondary
  return {
    isConnected,
    phase,
    connections,
    lagEntries,
    lagSeconds,
    copiedEntries: copied.entries,
    copiedBytes: copied.bytes,
  }
}

/** `head`: sequence of the newest commit. */
function primaryMetrics(primary: Primary, head: number): PrimaryMetrics {
  const secondaries = primary.active.map((one) => {
    const connected = primary.connected.get(one.id)
    const acknowledged = connected?.acknowledged ?? one.acknowledged ?? 0
    return {
      id: one.id,
      isConnected: primary.presence.isConnected(one.id, connected),
      lagEntries: Math.max(0, head - acknowledged),
      lagSeconds: primary.presence.lagSeconds(one, connected),
      inFlightBytes: connected?.inFlightBytes ?? 0,
      isAuthenticated: connected?.isAuthenticated ?? false,
    }
  })
  return { sync: primary.sync.state, waiting: primary.sync.waiting, secondaries }
}
