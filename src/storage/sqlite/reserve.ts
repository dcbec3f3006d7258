/**
 * Which commits may use the reserve of a full disk (`platform/disk-reserve.ts`): those that free or rewrite. All others are
 * refused meanwhile, so that the reserve serves revocations and deletes (docs/decisions/031).
 */
import { type Batch, HEAD_PATH } from './batch.ts'

/** Bytes by which an entry may grow that is written anew: a mark that a version is deleted, a number with one more digit. */
const GROWTH_BYTES = 128
/** Of a new entry beside others that are written anew or removed: a mark without content, as it lies in the barrier. */
const MARK_BYTES = 64

/** True for a batch that may use the reserve: it removes entries, or writes entries anew that hardly grow by it. */
export function isSparing({ deletes, puts }: Batch, sizeOf: (path: string) => number | undefined): boolean {
  let isAlone = deletes.length === 0
  let marks = 0
  for (const { path, value } of puts) {
    // It is written anew with each batch, and makes none of them one that frees.
    if (path === HEAD_PATH) continue
    const before = sizeOf(path)
    if (before === undefined ? value.length > MARK_BYTES : value.length > before + GROWTH_BYTES) return false
    if (before === undefined) marks++
    else isAlone = false
  }
  return marks === 0 || !isAlone
}
