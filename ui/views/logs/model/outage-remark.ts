/** What a tail shows between the lines before and after an outage. */
import type { LogBuffer, LogEntry } from './log-buffer.ts'

interface Outage {
  readonly remark: LogEntry
  readonly sinceMs: number
  readonly reason: string
}

export class OutageRemark {
  readonly #buffer: LogBuffer
  #outage: Outage | undefined

  constructor(buffer: LogBuffer) {
    this.#buffer = buffer
  }

  /** Further attempts belong to the same outage. */
  begin(reason: string): void {
    if (this.#outage) return
    const sinceMs = Date.now()
    const remark = this.#buffer.appendRemark(`Disconnected at ${clockTime(sinceMs)}: ${reason}`)
    this.#outage = { remark, sinceMs, reason }
  }

  end(): void {
    if (!this.#outage) return
    const { reason, remark, sinceMs } = this.#outage
    this.#outage = undefined
    const seconds = ((Date.now() - sinceMs) / 1000).toFixed(1)
    remark.text = `Disconnected at ${clockTime(sinceMs)} (${reason}), resumed ${seconds} s later at the same position.`
    remark.version++
    this.#buffer.measure(remark)
  }
}

function clockTime(atMs: number): string {
  return new Date(atMs).toLocaleTimeString('en-GB')
}
