/**
 * How far the clock of each node is from the clock of this server, measured with each message of the node: the time at which it
 * was sent minus the time at which it was received. The result contains the way of the message, some milliseconds, or seconds
 * under load. Calls to a node with `acl { enabled = true }` carry times, so a larger difference than `CLOCK_SKEW_MS` makes the node
 * refuse all of them. A node of an older version sends no time and is never reported.
 */
import type { Logger } from '../../platform/log.ts'
import { CLOCK_SKEW_MS } from '../trust/assertion.ts'

/** From here on a skew is worth a warning: half of what is refused. */
const SKEW_WARNING_MS = 30_000

interface NodeClock {
  readonly name: string
  readonly skewMs: number
}

export class NodeClocks {
  readonly #logger: Logger
  /** Whether nodes refuse calls for their times. */
  readonly #isChecked: boolean
  readonly #clocks = new Map<string, NodeClock>()

  constructor(logger: Logger, isChecked: boolean) {
    this.#logger = logger
    this.#isChecked = isChecked
  }

  /** Logs when a node passes the limit of a warning, in either direction. */
  measured(nodeId: string, { name, sentAtMs }: { name: string; sentAtMs: number | undefined }, wallMs: number): void {
    if (sentAtMs === undefined) return this.forget(nodeId)
    const wasSkewed = isSkewed(this.#clocks.get(nodeId))
    const clock = { name, skewMs: sentAtMs - wallMs }
    this.#clocks.set(nodeId, clock)
    if (isSkewed(clock) === wasSkewed) return
    const facts = { node_id: nodeId, name, skew_seconds: Math.round(clock.skewMs / 1000) }
    if (wasSkewed) this.#logger.info('clock of the node is right again', facts)
    else this.#logger.warn('clock of the node is wrong, or the one of this server: set both right (NTP)', facts)
  }

  forget(nodeId: string): void {
    this.#clocks.delete(nodeId)
  }

  /** Why calls to the node are refused; undefined where they are not. */
  fault(nodeId: string): string | undefined {
    const { skewMs } = this.#clocks.get(nodeId) ?? { skewMs: 0 }
    if (!this.#isChecked || Math.abs(skewMs) <= CLOCK_SKEW_MS) return undefined
    const seconds = Math.round(Math.abs(skewMs) / 1000)
    const where = skewMs > 0 ? 'ahead of' : 'behind'
    return `Clock of the node is ${seconds} s ${where} this server and calls to it are refused: set both clocks right (NTP)`
  }

  /** The largest first. */
  largest(count: number): { readonly nodeId: string; readonly name: string; readonly skewMs: number }[] {
    const all = [...this.#clocks].map(([nodeId, clock]) => ({ nodeId, ...clock }))
    return all.sort((a, b) => Math.abs(b.skewMs) - Math.abs(a.skewMs)).slice(0, count)
  }

  /** Nodes whose clocks deserve a warning. */
  get skewed(): { readonly nodeId: string; readonly name: string; readonly skewMs: number }[] {
    return [...this.#clocks].flatMap(([nodeId, clock]) => (isSkewed(clock) ? [{ nodeId, ...clock }] : []))
  }
}

function isSkewed(clock: NodeClock | undefined): boolean {
  return Math.abs(clock?.skewMs ?? 0) > SKEW_WARNING_MS
}
