/** Rejected messages of nodes: reasons, counts and log messages. */
import { type LogFields, type Logger, RateLimitedLogger } from '../../platform/log.ts'

/** Log message of each reason for a rejection. */
const REJECTIONS = {
  key: 'duplicate node ID, message with another key rejected',
  claim: 'allocation of another node claimed, rejected',
  // Signed with another key than it contains; not parseable; of a newer version.
  forged: 'node message rejected',
  malformed: 'node message rejected',
  newer: 'node message rejected',
  allocations: 'node state rejected, too many allocations',
  bytes: 'node message rejected, too large',
  rate: 'node messages rejected, too many',
} as const

export type RosterRejection = keyof typeof REJECTIONS

const NEXT: Readonly<Partial<Record<RosterRejection, string>>> = {
  key: 'a copied state directory, or a forgery: each host needs its own; if this host lost its state, purge the node',
  claim: 'if the owner is gone for good, or is the wrong one, purge it',
  allocations: 'collect allocations on the node',
}
/** Only an attack or a severe mistake causes these. */
const SEVERE: ReadonlySet<RosterRejection> = new Set(['key', 'claim'])
/** The sender is unknown, so these are logged without a distinction by node. */
const ANONYMOUS: ReadonlySet<RosterRejection> = new Set(['forged', 'malformed', 'newer'])

/** Counts rejected messages of nodes, and logs them once a minute for each reason and node. */
export class RosterRejections {
  readonly #limitedLogger: RateLimitedLogger
  readonly counts: Record<RosterRejection, number> = {
    key: 0,
    claim: 0,
    forged: 0,
    malformed: 0,
    newer: 0,
    allocations: 0,
    bytes: 0,
    rate: 0,
  }

  constructor(logger: Logger) {
    this.#limitedLogger = new RateLimitedLogger(logger)
  }

  count(reason: RosterRejection, nodeId: string | undefined, fields: LogFields = {}): void {
    this.counts[reason]++
    const key = ANONYMOUS.has(reason) ? reason : `${reason} ${nodeId ?? ''}`
    const next = NEXT[reason]
    const facts = { reason, node_id: nodeId, ...fields, ...(next === undefined ? {} : { next }) }
    this.#limitedLogger[SEVERE.has(reason) ? 'error' : 'warn'](REJECTIONS[reason], facts, key)
  }
}
