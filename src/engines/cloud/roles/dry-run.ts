/**
 * Dry runs of roles: their limits and findings. Any caller with `read` may start one, which sends up to some hundred requests
 * to AWS. So a mount has one at a time, and it ends when its caller disconnects, or after a minute.
 */
import { type EngineCall, Rejection } from '../../framework/engine.ts'
import { AwsFailure } from '../aws/aws-failure.ts'

const TIMEOUT_MS = 60_000

export class DryRun {
  /** The request, with a signal that also aborts at the timeout. */
  readonly call: EngineCall
  readonly #caller: AbortSignal

  constructor(call: EngineCall, timeoutMs = TIMEOUT_MS) {
    this.#caller = call.signal
    this.call = { ...call, signal: AbortSignal.any([call.signal, AbortSignal.timeout(timeoutMs)]) }
  }

  /** The finding of a check. Rejects with a Rejection (503) once the caller has disconnected. */
  async finding(what: string, check: () => Promise<unknown>): Promise<Finding> {
    this.checkCaller()
    if (this.call.signal.aborted) return { outcome: 'unknown', what, why: 'not checked: the dry run timed out' }
    const finding = await findingOf(what, check)
    this.checkCaller()
    return finding
  }

  checkCaller(): void {
    if (this.#caller.aborted) throw new Rejection(503, 'the request was canceled')
  }
}

/** `unknown`: the check was not possible, for a reason that is independent of the role. */
export type FindingOutcome = 'ok' | 'failed' | 'unknown'

export interface Finding {
  readonly outcome: FindingOutcome
  /** The subject of the check. */
  readonly what: string
  readonly why?: string
  /** The AWS action that the root credentials may not perform. */
  readonly missing?: string
}

export function findingText({ outcome, what, why }: Finding): string {
  return why === undefined ? `${outcome}: ${what}` : `${outcome}: ${what}: ${why}`
}

/** The outcome of several findings: failed before unknown before ok. */
export function outcomeOf(findings: readonly Finding[]): FindingOutcome {
  const has = (outcome: FindingOutcome) => findings.some((each) => each.outcome === outcome)
  return has('failed') ? 'failed' : has('unknown') ? 'unknown' : 'ok'
}

/** Rejects only with faults of the server. */
async function findingOf(what: string, check: () => Promise<unknown>): Promise<Finding> {
  try {
    await check()
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
