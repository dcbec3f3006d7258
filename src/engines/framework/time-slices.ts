/**
 * Work that gives way: what looks at very many entries for one caller does a little in each turn of the event loop, so that
 * everybody else on the thread is served meanwhile.
 *
 * Such work is a generator. It yields what it has just done, in units of about a bare name (a microsecond or less), wherever
 * others may come in, and is told whether they were: then what it reads next may be of a later state than what it has read,
 * and nothing that it holds of the store (a list that is half read) is good any more.
 *
 * Promises. The first `WHOLE` units are done in one turn, so a small answer is of one state and costs no promise. Of all work
 * that waits one piece goes on in each turn, in order, however many there are: together they take no more than one would, and
 * they share the turn's time with all else that gives way (`platform/scheduler.ts`).
 *
 * Assumes that nothing is written by it: between a read and the write that depends on it nobody may come in.
 */
import { scheduler } from '../../platform/scheduler.ts'
import { type EngineCall, Rejection } from './engine.ts'

/** Yields what was done; receives whether others have come in. */
export type Steps<T> = Generator<number, T, boolean>

/** What a secret's record costs to be read: some ten microseconds. */
export const RECORD_COST = 4
/** Done in one turn whatever the time. */
export const WHOLE = 256
/** Most of one turn, so that it has an end where the clock is coarse. */
const MOST = 4 * WHOLE

const line = scheduler.queue()

/** What the work returns, where it ends in this turn; else a promise. Rejects with a Rejection once nobody waits for it. */
export function inTurns<T>(steps: Steps<T>, call: Pick<EngineCall, 'signal'>): T | Promise<T> {
  const first = turn(steps, false)
  return first.done === true ? first.value : inMore(steps, call)
}

async function inMore<T>(steps: Steps<T>, { signal }: Pick<EngineCall, 'signal'>): Promise<T> {
  for (;;) {
    await line.later(true)
    if (signal.aborted) throw new Rejection(503, 'the request was given up')
    const next = turn(steps, true)
    if (next.done === true) return next.value
  }
}

function turn<T>(steps: Steps<T>, isLater: boolean): IteratorResult<number, T> {
  const endMs = performance.now() + scheduler.turnMs
  let next = steps.next(isLater)
  for (let done = 0; next.done !== true; next = steps.next(false)) {
    done += next.value
    if (done < WHOLE) continue
    // Where others wait to go on with such work, no more than what is promised.
    if (done >= MOST || line.hasWork || performance.now() >= endMs) return next
  }
  return next
}
