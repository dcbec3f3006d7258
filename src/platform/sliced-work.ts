/**
 * Runs long work as a generator, in slices of the event loop (`scheduler.ts`).
 *
 * The generator yields the cost of what it has just done, in units of about a microsecond (one bare name), wherever other work
 * may run, and receives whether it did. If so, a later read may see a later state: the generator must not use an iterator or a
 * list that it has read in part. It must not write, because no read of it is one step with a write.
 *
 * The first `FIRST_SLICE_UNITS` run at once, so a small result is of one state and costs no promise. After that one slice of all
 * waiting generators runs in each turn, in order, so many of them together take no more time than one.
 */
import { Refusal } from './errors.ts'
import { scheduler } from './scheduler.ts'

/** Yields the cost of what was done, receives whether other work ran since. */
export type SlicedWork<T> = Generator<number, T, boolean>

/** Cost of reading a stored record: some ten microseconds. */
export const RECORD_COST = 4
/** Units that run at once, also if they exceed the time of the turn. */
export const FIRST_SLICE_UNITS = 256
/** Bounds a slice on machines with a coarse clock. */
const SLICE_UNITS_MAX = 4 * FIRST_SLICE_UNITS

const slices = scheduler.queue()

/** Returns the result if the first slice completes the work, else a promise. Rejects with a Refusal (503) once `signal` aborts. */
export function runSliced<T>(work: SlicedWork<T>, { signal }: { readonly signal: AbortSignal }): T | Promise<T> {
  const first = runSlice(work, false)
  return first.done === true ? first.value : runRemaining(work, signal)
}

async function runRemaining<T>(work: SlicedWork<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    await slices.later(true)
    if (signal.aborted) throw new Refusal('unavailable', 'the request was canceled')
    const next = runSlice(work, true)
    if (next.done === true) return next.value
  }
}

function runSlice<T>(work: SlicedWork<T>, isResumed: boolean): IteratorResult<number, T> {
  const endMs = performance.now() + scheduler.turnMs
  let next = work.next(isResumed)
  for (let units = 0; next.done !== true; next = work.next(false)) {
    units += next.value
    if (units < FIRST_SLICE_UNITS) continue
    if (units >= SLICE_UNITS_MAX || slices.hasWork || performance.now() >= endMs) return next
  }
  return next
}
