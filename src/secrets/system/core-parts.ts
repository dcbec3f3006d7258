/**
 * What the endpoints of the core see of it, in parts: each list of paths names the stores and facts that it uses, and the
 * daemon gives it the whole. So a list can be tried with a store alone, and no list depends on what others need.
 */
import type { Seal } from '../../storage/seal/seal.ts'
import type { Caller } from '../../engines/framework/engine.ts'
import type { Logger } from '../../platform/log.ts'
import type { Canonical } from '../../engines/framework/path-table.ts'
import type { Acl } from '../policies/acl.ts'
import type { DrFence, ReplicationSide } from '../dr/dr-replication.ts'
import type { Surroundings } from './host-info.ts'

/** Stores that are there while the core is active. */
export interface Opened<Stores> {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: Stores
}

/** What the core was made with. */
export interface CoreFacts {
  readonly seal: Seal
  readonly version: string
  readonly logger: Logger
  readonly surroundings?: Surroundings
  /** Rejects with a Refusal where another server of the region has a secrets core, or may have one. */
  readonly requireNoOtherCore?: () => Promise<void>
  /** Absent where the process does not replicate. */
  readonly replication?: ReplicationSide
  /** What callers without a token may do with key shares, as the configuration is at this moment; nothing unless given. */
  readonly unauthed?: { readonly rekey: () => boolean; readonly generateRoot: () => boolean }
}

export interface MadeWith<Fact extends keyof CoreFacts> {
  readonly options: Pick<CoreFacts, Fact>
}

export interface Timed {
  /** Milliseconds since 1970, by the clock that lives are measured with. */
  now(): number
}

/** What a token may do. */
export interface Judging {
  /** The form of a path that policies judge. */
  readonly canonical: Canonical
  aclOf(caller: Pick<Caller, 'entityId' | 'policies'>): Acl
}

/** In which state the core is. */
export interface CoreState extends Opened<{ readonly clusterName: string; readonly clusterId: string }> {
  readonly isInitialised: boolean
  readonly isActive: boolean
  /** The cluster is a secondary for disaster recovery. */
  readonly isSecondary: boolean
  /** Why the cluster is a fenced primary; undefined while it is not. */
  readonly fence: DrFence | undefined
  /** Neither open nor, on a secondary, standing by with the key of its primary. */
  readonly isSealed: boolean
}
