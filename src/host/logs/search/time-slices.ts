/**
 * Work on the main thread that takes as long as its caller's bytes last, done a slice at a time: everybody who has such
 * work gets slices in turn, and gives way to all other work (`platform/scheduler.ts`).
 */
import { scheduler } from '../../../platform/scheduler.ts'

/** Does one slice, which is well below a turn's time; true when there is more to do. */
export type Slice = () => boolean

const line = scheduler.queue()

/**
 * Does all slices of a work: at once as far as this turn has time, the others in later turns. Returns nothing when all is
 * done, else a promise of that, which rejects with what a slice throws.
 */
export function inSlices(slice: Slice): Promise<void> | undefined {
  let more = true
  while (more && line.isFree()) more = slice()
  if (!more) return undefined
  return new Promise((resolve, reject) => {
    const next = () => {
      try {
        if (slice()) line.wait(next)
        else resolve()
      } catch (error) {
        reject(error)
      }
    }
    line.wait(next)
  })
}
