/**
 * The interfaces through which endpoints use the core. Each list of paths declares only the stores and facts that it uses, so it
 * can be tested with these alone.
 */
import type { Seal } from '../../storage/seal/seal.ts'
import type { Caller } from '../../engines/framework/engine.ts'
import type { Logger } from '../../platform/log.ts'
import type { Canonical } from '../../engines/framework/path-table.ts'
import type { Acl } from '../policies/acl.ts'
import type { DrFence, ReplicationSide } from '../dr-endpoints/dr-side.ts'
import type { HaSide } from '../ha-endpoints/ha-side.ts'

/** Facts about the server process. Absent in tests of the core alone. */
export interface ServerInfo {
  /** URL of the API; empty while it is unknown. */
  readonly apiAddress?: () => string
  /** Address for other servers; empty if there is none. */
  readonly clusterAddress?: () => string
  readonly metrics?: {
    /** The last complete interval. */
    json(): object
    /** Current values in Prometheus format; undefined if that format is disabled. */
    text(): Promise<string> | undefined
  }
  /** The configuration without secrets, under Vault's names. */
  readonly settings?: () => Record<string, unknown>
  /** Directories whose file systems `sys/host-info` shows. */
  readonly directories?: readonly string[]
}

/** Stores of an active core. */
export interface OpenStores<Stores> {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: Stores
}

/** Options of the core that endpoints use. */
export interface CoreFacts {
  readonly seal: Seal
  readonly version: string
  readonly logger: Logger
  readonly serverInfo?: ServerInfo
  /** Rejects with a Refusal if another server of the region has a secrets core, or may have one. */
  readonly requireNoOtherCore?: () => Promise<void>
  /** Absent if DR replication is not configured. */
  readonly replication?: ReplicationSide
  /** Absent without high availability. */
  readonly ha?: HaSide
  /** Whether callers without a token may use the endpoints for key shares, by the current configuration; no by default. */
  readonly unauthed?: { readonly rekey: () => boolean; readonly generateRoot: () => boolean }
}

export interface WithOptions<Fact extends keyof CoreFacts> {
  readonly options: Pick<CoreFacts, Fact>
}

export interface WithClock {
  /** Milliseconds since 1970, by the clock for TTLs. */
  now(): number
}

/** Evaluates policies. */
export interface PolicyEvaluator {
  /** The form of a path that policies match. */
  readonly canonical: Canonical
  aclOf(caller: Pick<Caller, 'entityId' | 'policies'>): Acl
}

export interface CoreState extends OpenStores<{ readonly clusterName: string; readonly clusterId: string }> {
  readonly isInitialised: boolean
  readonly isActive: boolean
  /** The cluster is a DR secondary. */
  readonly isSecondary: boolean
  /** Set if the cluster is a fenced primary. */
  readonly fence: DrFence | undefined
  /** An unsealed server of a highly available core that is not the active one. */
  readonly isHaStandby: boolean
  /** Neither active nor in standby with the root key: of a DR secondary, or of a highly available core. */
  readonly isSealed: boolean
}
