/**
 * Whether a device records, for the log, readiness and refused requests.
 *
 * A device that fails again and again records lines in between: on a full disk a short line may fit where a long one does not. Therefore
 * it has recovered only after a period without a failure. The first failure after that is logged, so the last line in the log tells the
 * state; a failure for another reason is logged immediately, and one for the same reason once a minute.
 */
import { messageOf } from '../../platform/errors.ts'
import { LogOnce } from '../../platform/log.ts'
import { reasonOf } from './device-fault.ts'

const FAILURE_LOG_INTERVAL_MS = 60_000
/** A device has recovered when it records a line and has not failed for this time. */
const STABLE_MS = 5000

export interface DeviceFailure {
  /** The whole error. */
  readonly fault: string
  /** The error without paths and addresses. */
  readonly reason: string
  /** The device has recorded a line since. */
  readonly isPast: boolean
  readonly agoMs: number
}

export class DeviceHealth {
  readonly #elapsed: () => number
  readonly #logged = new LogOnce({ everyMs: FAILURE_LOG_INTERVAL_MS })
  #failure: { readonly fault: string; readonly reason: string; readonly atMs: number } | undefined
  #isFailing = false

  constructor(elapsed: () => number) {
    this.#elapsed = elapsed
  }

  /** The last failure; undefined if the device has recovered. */
  get failure(): DeviceFailure | undefined {
    if (!this.#failure) return undefined
    const { atMs, fault, reason } = this.#failure
    return { fault, reason, isPast: !this.#isFailing, agoMs: this.#elapsed() - atMs }
  }

  /** Notes an error. Returns true if it must be logged. */
  fail(error: unknown): boolean {
    const reason = reasonOf(error)
    this.#failure = { fault: messageOf(error), reason, atMs: this.#elapsed() }
    this.#isFailing = true
    return this.#logged.due(reason) > 0
  }

  /** Notes a recorded line. Returns true if the device has recovered with it. `distrustMs` is added to the period without a failure. */
  succeed(distrustMs: number): boolean {
    this.#isFailing = false
    if (!this.#failure || this.#elapsed() - this.#failure.atMs < STABLE_MS + distrustMs) return false
    this.#failure = undefined
    this.#logged.clear()
    return true
  }
}
