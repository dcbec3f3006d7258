/** What was refused of the messages of nodes: counted by reason, and logged once a minute for each reason and node. */
import type { Fields, Logger } from '../../platform/log.ts'
import { RateLimitedLogger } from '../../platform/rate-limited-log.ts'

/** Each with what the log says of it. */
const TEXTS = {
  key: 'another key speaks for a node that is known: refused. A copied state directory, or a forgery',
  claim:
    'a node claims an allocation that belongs to another node: refused. If its owner is gone for good, or is the false one, purge the owner',
  // Not signed by the key that it names; no message at all; of a version that this server does not know.
  forged: 'messages about nodes were refused',
  malformed: 'messages about nodes were refused',
  newer: 'messages about nodes were refused',
  allocations: 'a node announces more allocations than it may: its state was refused, collect some on the node',
  bytes: 'a message of a node is too large: refused',
  rate: 'a node sends too much: some of its messages were refused',
} as const

export type RosterRefusal = keyof typeof TEXTS

/** Refused because a node does what only an attacker or a grave mistake does. */
const GRAVE: ReadonlySet<RosterRefusal> = new Set(['key', 'claim'])
/** Who sent these is not known, so they are logged as of one. */
const ANONYMOUS: ReadonlySet<RosterRefusal> = new Set(['forged', 'malformed', 'newer'])

export class RosterRefusals {
  readonly #complaints: RateLimitedLogger
  readonly counts: Record<RosterRefusal, number> = {
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
    this.#complaints = new RateLimitedLogger(logger)
  }

  count(reason: RosterRefusal, nodeId: string | undefined, fields: Fields = {}): void {
    this.counts[reason]++
    const key = ANONYMOUS.has(reason) ? reason : `${reason} ${nodeId ?? ''}`
    this.#complaints[GRAVE.has(reason) ? 'error' : 'warn'](TEXTS[reason], { reason, node_id: nodeId, ...fields }, key)
  }
}
