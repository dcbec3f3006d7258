/** What a dry run has found: one line for each thing that was looked at. */
import { Rejection } from '../../framework/engine.ts'
import { AwsFailure } from '../aws/aws-failure.ts'

/** `unknown`: it could not be seen, for a reason that says nothing about the role. */
export type Outcome = 'ok' | 'failed' | 'unknown'

export interface Finding {
  readonly outcome: Outcome
  /** What was looked at. */
  readonly what: string
  readonly why?: string
  /** The action of AWS that the root credentials lack. */
  readonly missing?: string
}

export function lineOf({ outcome, what, why }: Finding): string {
  return why === undefined ? `${outcome}: ${what}` : `${outcome}: ${what}: ${why}`
}

/** Of several findings: one that failed decides, then one that is not known. */
export function outcomeOf(findings: readonly Finding[]): Outcome {
  const has = (outcome: Outcome) => findings.some((each) => each.outcome === outcome)
  return has('failed') ? 'failed' : has('unknown') ? 'unknown' : 'ok'
}

/** Of what `look` resolves with, or rejects with. Only faults of the server are thrown on. */
export async function foundBy(what: string, look: () => Promise<unknown>): Promise<Finding> {
  try {
    await look()
    return { outcome: 'ok', what }
  } catch (error) {
    return failureFinding(what, error)
  }
}

export function failureFinding(what: string, error: unknown): Finding {
  if (error instanceof Rejection)
    return { outcome: error.status === 502 ? 'unknown' : 'failed', what, why: error.message }
  if (!(error instanceof AwsFailure)) throw error
  const { isAmbiguous, isThrottle, message, text } = error
  if (isThrottle || isAmbiguous) return { outcome: 'unknown', what, why: text }
  const [, missing] = /not authorized to perform: ([\w-]+:\w+)/.exec(message) ?? []
  return { outcome: 'failed', what, why: text, ...(missing !== undefined && { missing }) }
}
