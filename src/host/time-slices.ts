/**
 * Work on the main thread that takes as long as its caller's bytes last, done a slice at a time.
 *
 * Everybody who has such work gets slices in turn, and all of them together no more than `TURN_MS_MAX` of each turn of
 * the event loop: timers, heartbeats and other streams wait no longer for a hundred of them than for one. It is time that
 * is measured, not bytes, because what a byte costs depends on what is done with it.
 */

import { setImmediate as nextTurnOfLoop } from 'node:timers/promises'

/** A slice of its own should be well below this. */
const TURN_MS_MAX = 1

/** Does one slice; true when there is more to do. */
export type Slice = () => boolean

interface Waiting {
  readonly slice: Slice
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** In the order of their turns. */
const waiting: Waiting[] = []
let spentMs = 0
let turnIsSet = false

/** Does one slice and counts what it took. */
function spend(slice: Slice): boolean {
  const startMs = performance.now()
  try {
    return slice()
  } finally {
    spentMs += performance.now() - startMs
    setTurn()
  }
}

function setTurn(): void {
  if (turnIsSet) return
  turnIsSet = true
  setImmediate(nextTurn)
}

function nextTurn(): void {
  turnIsSet = false
  spentMs = 0
  while (spentMs < TURN_MS_MAX) {
    const next = waiting.shift()
    if (!next) return
    try {
      if (spend(next.slice)) waiting.push(next)
      else next.resolve()
    } catch (error) {
      next.reject(error)
    }
  }
  if (waiting.length > 0) setTurn()
}

/**
 * Does all slices of a work: at once as far as this turn has time, the others in later turns. Returns nothing when all is
 * done, else a promise of that, which rejects with what a slice throws.
 */
export function inSlices(slice: Slice): Promise<void> | undefined {
  let more = true
  while (more && waiting.length === 0 && spentMs < TURN_MS_MAX) more = spend(slice)
  if (!more) return undefined
  setTurn()
  return new Promise((resolve, reject) => {
    waiting.push({ slice, resolve, reject })
  })
}

/** For a work whose parts wait for something anyway: leaves the turn to others where it has had its part of it. */
export class Turns {
  #sinceMs = performance.now()

  /** To be awaited before each part. */
  async spend(): Promise<void> {
    if (performance.now() - this.#sinceMs < TURN_MS_MAX) return
    await nextTurnOfLoop()
    this.#sinceMs = performance.now()
  }
}
