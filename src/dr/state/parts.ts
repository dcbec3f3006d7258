/** What the room is made of: what the daemon hands in, and what one half of the room needs of the other. */
import type { Logger } from '../../platform/log.ts'
import type { ReplicaStore } from '../../storage/store/replica.ts'

export interface ReplicationSettings {
  /** Commits of a primary wait until its secondaries have them. */
  readonly sync: boolean
  /** So long; then they go on without, and everything says so. */
  readonly syncTimeoutMs: number
  /** A primary that has heard from no secondary for so long takes no more writes; 0: it goes on. */
  readonly fenceAfterMs: number
  /** Rows and bytes that may be on their way to a secondary, or wait there. */
  readonly bufferLength: number
  readonly bufferBytes: number
  /** To all secondaries together, in a second; 0: no limit. */
  readonly bandwidthBytes: number
}

/** Times of the link; tests have shorter ones. */
export interface LinkTimings {
  /** Between two heartbeats. */
  readonly beatMs: number
  /** Without a word for so long, a connection is given up; a multiple of the beat. */
  readonly silenceMs: number
  /** Until a connection stands, or a call is answered. */
  readonly answerMs: number
  readonly retryMinMs: number
  readonly retryMaxMs: number
  /** A primary with secondaries waits so long, at its start, for one that knows a newer primary. */
  readonly startMs: number
  /** Rows are collected for so long before they are sent to a secondary that no commit waits for. */
  readonly gatherMs: number
  /** A secondary looks at all its entries so often. */
  readonly compareMs: number
  /** How long a secondary may take for the last commits of a primary that is demoted in its favour. */
  readonly handoverMs: number
}

export const TIMINGS: LinkTimings = {
  beatMs: 1000,
  silenceMs: 5000,
  answerMs: 10_000,
  retryMinMs: 200,
  retryMaxMs: 2000,
  startMs: 5000,
  gatherMs: 4,
  compareMs: 3600_000,
  handoverMs: 15_000,
}

/** Told of changes of role, in order; the daemon closes and opens the barrier and the core in it. */
export interface Transition {
  /** Before the store becomes a replica: no more writes, the root key is held. */
  toSecondary(): Promise<void>
  /** Nothing is left of what this cluster had: what was remembered of it is forgotten. */
  wiped(): Promise<void>
  /** Before a secondary is promoted: rejects with a Refusal where its entries could not be served. Nothing has changed by then. */
  beforePrimary(): Promise<void>
  /** The store takes commits again. */
  toPrimary(): Promise<void>
  /** It refuses them: another cluster is the primary. */
  fenced(): Promise<void>
}

/** Encryption that only an open primary has. Both throw while it is sealed. */
export interface Secrets {
  protect(name: string, value: Uint8Array): Uint8Array
  reveal(name: string, value: Uint8Array): Buffer
}

/** Codes that only the unsealed members of a replication set can make: under a key of the barrier, which the daemon asks. */
export interface MembershipKey {
  /** Whether this cluster can make no codes now. */
  readonly isSealed: boolean
  /** HMAC-SHA-256, 32 bytes; undefined while this cluster is sealed. */
  codeOf(text: string): Buffer | undefined
}

/** Where clients and other clusters find this one. */
export interface Addresses {
  readonly api: string
  readonly cluster: string
}

export interface ReplicationParts {
  readonly store: ReplicaStore
  readonly logger: Logger
  readonly settings: ReplicationSettings
  readonly version: string
  readonly dataDir: string
  readonly listenAddress: { readonly host: string; readonly port: number }
  readonly addresses: () => Addresses
  readonly secrets: Secrets
  readonly membership: MembershipKey
  readonly transition: Transition
  readonly now?: () => number
  readonly timings?: Partial<LinkTimings>
}
