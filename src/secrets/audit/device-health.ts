/**
 * Whether a device records, for the log, readiness and refused requests. A failure is logged immediately if it is the first one, or if its
 * reason is another one than before, and then once a minute by reason.
 */
import { messageOf } from '../../platform/errors.ts'
import { LogOnce } from '../../platform/log.ts'
import { reasonOf } from './device-fault.ts'

const FAILURE_LOG_INTERVAL_MS = 60_000

export interface DeviceFailure {
  /** The whole error. */
  readonly fault: string
  /** The error without paths and addresses. */
  readonly reason: string
}

export class DeviceHealth {
  readonly #logged = new LogOnce({ everyMs: FAILURE_LOG_INTERVAL_MS })
  #failure: DeviceFailure | undefined
  #isLogged = false

  /** The failure of the last line; undefined if it was recorded. */
  get failure(): DeviceFailure | undefined {
    return this.#failure
  }

  /** Notes an error. Returns true if it must be logged. */
  fail(error: unknown): boolean {
    const reason = reasonOf(error)
    this.#failure = { fault: messageOf(error), reason }
    if (this.#logged.due(reason) === 0) return false
    this.#isLogged = true
    return true
  }

  /** Notes a recorded line. Returns true if the recovery must be logged. */
  succeed(): boolean {
    this.#failure = undefined
    const wasLogged = this.#isLogged
    this.#isLogged = false
    return wasLogged
  }
}
