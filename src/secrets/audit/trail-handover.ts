/** The audit trail between two activities of the core: the devices of the last one are closed, and those of the next one must record. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Fault } from '../../platform/errors.ts'
import type { AuditTrail } from './audit.ts'

/** Time for the queued lines of the last activity */
const END_MS = 1000
/** Time for the first line of the next one */
const START_MS = 2000

/** A device that does not respond must not prevent the activation. Never rejects. */
export async function endTrail(trail: AuditTrail | undefined): Promise<void> {
  if (trail) await Promise.race([trail.end(), sleep(END_MS, undefined, { ref: false })])
}

/** Rejects with a Fault if devices are enabled and none of them records a line. */
export async function requireRecording(trail: AuditTrail): Promise<void> {
  const late = sleep(START_MS, false, { ref: false })
  if (await Promise.race([trail.announce(), late])) return
  const reasons = trail.states.map(({ fault = 'no response', path }) => `${path} ${fault}`)
  throw new Fault(`no audit device of this server can record requests: ${reasons.join(', ')}`)
}
