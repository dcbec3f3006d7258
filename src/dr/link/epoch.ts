/** Epochs that a peer names: a store that takes one over can never go back below it. */
import { LinkError } from './link.ts'

/** Each promotion is one more, so a peer is never far ahead. */
export const EPOCH_STEP_MAX = 1024

/** Throws a LinkError for an epoch that no number of promotions explains: what is left of the range would be used up. */
export function checkEpoch(named: number, own: number): void {
  if (named > own + EPOCH_STEP_MAX) {
    throw new LinkError('malformed', `epoch ${named} is far above that of this cluster, which is ${own}`)
  }
}
