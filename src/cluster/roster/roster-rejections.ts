/** Rejected messages of nodes: reasons, counts and log messages. */
import { type LogFields, type Logger, RateLimitedLogger } from '../../platform/log.ts'

/** Log message of each reason for a rejection. */
const REJECTIONS = {
  key: 'duplicate node ID, message with another key rejected',
  claim: 'node claimed an allocation of another node, rejected',
  // Signed with another key than it contains; not parseable; of a newer version.
  forged: 'node message rejected',
  malformed: 'node message rejected',
  newer: 'node message rejected',
  allocations: 'node state rejected, too many allocations',
  bytes: 'node message rejected, too large',
  rate: 'too many node messages, rejected',
} as const

export type RosterRejection = keyof typeof REJECTIONS

const NEXT: Readonly<Partial<Record<RosterRejection, string>>> = {
  key: 'the state directory was copied to another host, or the message is forged; if this host lost its state, run "outpost node purge"',
  claim: 'if the owner no longer exists or is wrong, run "outpost node purge" on it',
  allocations: 'run "outpost node gc" for the node',
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
