/**
 * Why an audit device cannot record, for two readers. The log and `sys/audit` have the whole message. Readiness and refused requests have
 * the reason only: callers without a token see them, so it contains no path and no address.
 */
import { errnoOf, Fault } from '../../platform/errors.ts'

export class DeviceFault extends Fault {
  /** A phrase that follows the name of the device. It is constant for each cause, because failures are logged once a minute by reason. */
  readonly reason: string

  /** `subject`: the path, the address or the device that the message is about. */
  constructor(subject: string, reason: string) {
    super(`${subject} ${reason}`)
    this.reason = reason
  }
}

/** The reason of a DeviceFault, else the name of the system error. */
export function reasonOf(error: unknown): string {
  if (error instanceof DeviceFault) return error.reason
  return errnoOf(error) ?? (error instanceof Error ? errnoOf(error.cause) : undefined) ?? 'failed'
}
