/**
 * What a dry run may cost: any caller with `read` can ask for one, and each is up to some hundred calls to AWS, which counts what
 * one account asks. There is one at a time of a mount; it ends with its caller, and after a minute.
 */
import { type EngineCall, Rejection } from '../../framework/engine.ts'
import { type Finding, foundBy } from '../mount/finding.ts'

const CHECK_MS = 60_000

export class Trial {
  /** The request, whose signal also ends with the time of the dry run. */
  readonly call: EngineCall
  readonly #caller: AbortSignal

  constructor(call: EngineCall, limitMs = CHECK_MS) {
    this.#caller = call.signal
    this.call = { ...call, signal: AbortSignal.any([call.signal, AbortSignal.timeout(limitMs)]) }
  }

  /** Of what `look` resolves or rejects with. Rejects with a Rejection (503) once the caller is gone. */
  async finding(what: string, look: () => Promise<unknown>): Promise<Finding> {
    this.checkCaller()
    if (this.call.signal.aborted) return { outcome: 'unknown', what, why: 'not looked at: the dry run took too long' }
    const found = await foundBy(what, look)
    this.checkCaller()
    return found
  }

  checkCaller(): void {
    if (this.#caller.aborted) throw new Rejection(503, 'the request was given up')
  }
}
