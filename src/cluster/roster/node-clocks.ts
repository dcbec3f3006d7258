/**
 * Clock skew of each node relative to this server: send time minus reception time of the node's messages. Calls to a node with
 * `acl { enabled = true }` carry times, so the node rejects all of them if the skew exceeds `CLOCK_SKEW_MS`.
 */
import type { Logger } from '../../platform/log.ts'
import { CLOCK_SKEW_MS, ClockSkews } from '../trust/clock-skews.ts'

export class NodeClocks extends ClockSkews {
  /** True if nodes reject calls with wrong times. */
  readonly #isChecked: boolean

  constructor(logger: Logger, isChecked: boolean) {
    super({ logger, message: 'node clock skew', fieldsOf: ({ id, name }) => ({ node_id: id, name }) })
    this.#isChecked = isChecked
  }

  /** The reason why the node rejects calls; undefined if it does not. */
  fault(nodeId: string): string | undefined {
    const skewMs = this.of(nodeId)
    if (!this.#isChecked || Math.abs(skewMs) <= CLOCK_SKEW_MS) return undefined
    const seconds = Math.round(Math.abs(skewMs) / 1000)
    const where = skewMs > 0 ? 'ahead of' : 'behind'
    return `The clock of the node is ${seconds} s ${where} this server and calls to it are refused: synchronize both clocks (NTP)`
  }
}
