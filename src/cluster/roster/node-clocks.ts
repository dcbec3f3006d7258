/**
 * Clock skew of each node relative to this server: send time minus reception time of the node's messages. It contains the
 * transmission time: some milliseconds, or seconds under load. Calls to a node with `acl { enabled = true }` carry times, so
 * the node rejects all of them if the skew exceeds `CLOCK_SKEW_MS`. A node of an older version sends no time and is never reported.
 */
import type { Logger } from '../../platform/log.ts'
import { CLOCK_SKEW_MS } from '../trust/assertion.ts'

/** Skew above which a warning is logged: half of what is rejected. */
const SKEW_WARNING_MS = 30_000

interface NodeClock {
  readonly name: string
  readonly skewMs: number
}

export class NodeClocks {
  readonly #logger: Logger
  /** True if nodes reject calls with wrong times. */
  readonly #isChecked: boolean
  readonly #clocks = new Map<string, NodeClock>()

  constructor(logger: Logger, isChecked: boolean) {
    this.#logger = logger
    this.#isChecked = isChecked
  }

  /** Logs when the skew of a node crosses the limit, in either direction. */
  measure(nodeId: string, { name, sentAtMs }: { name: string; sentAtMs: number | undefined }, wallMs: number): void {
    if (sentAtMs === undefined) return this.remove(nodeId)
    const wasSkewed = isSkewed(this.#clocks.get(nodeId))
    const clock = { name, skewMs: sentAtMs - wallMs }
    this.#clocks.set(nodeId, clock)
    if (isSkewed(clock) === wasSkewed) return
    const facts = { node_id: nodeId, name, skew_seconds: Math.round(clock.skewMs / 1000) }
    if (wasSkewed) this.#logger.info('node clock skew resolved', facts)
    else this.#logger.warn('node clock skew', { ...facts, next: 'synchronize both clocks (NTP)' })
  }

  remove(nodeId: string): void {
    this.#clocks.delete(nodeId)
  }

  /** The reason why the node rejects calls; undefined if it does not. */
  fault(nodeId: string): string | undefined {
    const { skewMs } = this.#clocks.get(nodeId) ?? { skewMs: 0 }
    if (!this.#isChecked || Math.abs(skewMs) <= CLOCK_SKEW_MS) return undefined
    const seconds = Math.round(Math.abs(skewMs) / 1000)
    const where = skewMs > 0 ? 'ahead of' : 'behind'
    return `The clock of the node is ${seconds} s ${where} this server and calls to it are refused: synchronize both clocks (NTP)`
  }

  /** The largest skews. */
  largest(count: number): { readonly nodeId: string; readonly name: string; readonly skewMs: number }[] {
    const all = [...this.#clocks].map(([nodeId, clock]) => ({ nodeId, ...clock }))
    return all.sort((a, b) => Math.abs(b.skewMs) - Math.abs(a.skewMs)).slice(0, count)
  }

  /** Nodes above the limit. */
  get skewed(): { readonly nodeId: string; readonly name: string; readonly skewMs: number }[] {
    return [...this.#clocks].flatMap(([nodeId, clock]) => (isSkewed(clock) ? [{ nodeId, ...clock }] : []))
  }
}

function isSkewed(clock: NodeClock | undefined): boolean {
  return Math.abs(clock?.skewMs ?? 0) > SKEW_WARNING_MS
}
