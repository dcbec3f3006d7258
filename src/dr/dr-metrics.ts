/** Numbers of replication, for metrics. */
import type { Primary } from './primary/primary.ts'
import type { Secondary } from './secondary/secondary.ts'
import type { ReplicaStore } from '../storage/store/replica.ts'

export interface SecondaryFigures {
  readonly isConnected: boolean
  readonly phase: string
  /** Connections to a primary since the start. */
  readonly connections: number
  /** Unknown before the first word of the primary. */
  readonly lagEntries: number | undefined
  readonly lagSeconds: number | undefined
  readonly copiedEntries: number
  readonly copiedBytes: number
}

export interface PrimaryFigures {
  /** `off`, `on` or `degraded`. */
  readonly sync: string
  /** Commits that are durable here and wait for a secondary. */
  readonly waiting: number
  readonly secondaries: readonly {
    readonly id: string
    readonly isConnected: boolean
    readonly lagEntries: number
    readonly lagSeconds: number
    /** Sent and not acknowledged. */
    readonly flyingBytes: number
    /** Its newest word came with a valid proof of membership. */
    readonly isAuthenticated: boolean
  }[]
}

export interface ReplicationFigures {
  readonly mode: 'disabled' | 'primary' | 'secondary'
  readonly epoch: number
  /** Sequence of the newest commit. */
  readonly position: number
  readonly isWhole: boolean
  readonly isFenced: boolean
  readonly secondary: SecondaryFigures | undefined
  readonly primary: PrimaryFigures | undefined
}

/** What is known without waiting. */
export function replicationFigures(
  mode: ReplicationFigures['mode'],
  store: ReplicaStore,
  { primary, secondary }: { readonly primary: Primary | undefined; readonly secondary: Secondary | undefined },
): ReplicationFigures {
  const position = store.position().sequence
  return {
    mode,
    epoch: store.epoch,
    position,
    isWhole: store.isWhole,
    isFenced: store.role === 'fenced',
    secondary: secondary && secondaryFigures(secondary),
    primary: primary && primaryFigures(primary, position),
  }
}

function secondaryFigures(secondary: Secondary): SecondaryFigures {
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
function primaryFigures(primary: Primary, head: number): PrimaryFigures {
  const secondaries = primary.active.map((one) => {
    const follower = primary.followers.get(one.id)
    const acknowledged = follower?.acknowledged ?? one.acknowledged ?? 0
    return {
      id: one.id,
      isConnected: primary.presence.isConnected(one.id, follower),
      lagEntries: Math.max(0, head - acknowledged),
      lagSeconds: primary.presence.lagSeconds(one, follower),
      flyingBytes: follower?.flyingBytes ?? 0,
      isAuthenticated: follower?.isAuthenticated ?? false,
    }
  })
  return { sync: primary.sync.state, waiting: primary.sync.waiting, secondaries }
}
