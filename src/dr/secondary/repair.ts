/**
 * A secondary that follows checks all its entries periodically, and repairs from its primary what damage or another program has
 * changed. The log goes on meanwhile: an entry is put as the primary had it at a moment, and left alone when a row has changed it since.
 *
 * The check compares the entries with this cluster's own tree. Another program that changes an entry may change the tree too, and
 * a reindex makes the tree of what is there: only a comparison with the tree of the primary finds that (`isCompared`).
 */
import type { Logger } from '../../platform/log.ts'
import { sleep } from '../../platform/clock.ts'
import type { ReplicaStore, TreeReport } from '../../storage/store/replica.ts'
import { Copy, differingSubpages, type Progress } from './catch-up.ts'
import type { LinkClient } from '../link/link.ts'

const SUBPAGES = 256
const APPLIED_LOOK_MS = 20

export interface RepairParts {
  readonly link: LinkClient
  readonly store: ReplicaStore
  readonly logger: Logger
  readonly answerMs: number
  readonly signal: AbortSignal
  /** Compare with the tree of the primary too. */
  readonly isCompared: boolean
}

/** Resolves with what the last look found: before the repair where nothing was wrong, else after it. */
export async function checkAndRepair(parts: RepairParts): Promise<TreeReport> {
  const { link, store, logger, answerMs, signal, isCompared } = parts
  const report = await store.tree.check()
  const subpages = corruptedIn(report)
  if (isCompared) for (const subpage of await differingSubpages(parts)) subpages.add(subpage)
  if (subpages.size === 0) return report
  logger.warn('entries are not as the log has left them: they are compared with the primary', {
    subpages: subpages.size,
    damaged: report.damagedCount,
  })
  const progress: Progress = { found: 0, done: 0, bytes: 0 }
  const onDamaged = (paths: readonly string[]) =>
    logger.error('the primary cannot read these entries either', { paths: paths.slice(0, 10).join(', ') })
  const copy = new Copy({
    link,
    store,
    progress,
    answerMs,
    signal,
    onDamaged,
    write: async (puts, deletes, asOf) => {
      while (store.position().sequence < asOf) {
        signal.throwIfAborted()
        // oxlint-disable-next-line no-await-in-loop
        await sleep(APPLIED_LOOK_MS, signal)
      }
      await store.repairEntries(puts, deletes, asOf)
    },
  })
  await copy.run(subpages)
  await store.tree.rebuild({ diff: true, skipFlush: false })
  logger.warn('entries were repaired from the primary', { entries: progress.done, bytes: progress.bytes })
  return store.tree.check()
}

/** Of a page that cannot be read as a whole: all of its subpages. */
function corruptedIn(report: TreeReport): Set<number> {
  const found = new Set<number>()
  for (const [page, { isCorrupted, subpages }] of report.trees.replicated.pages) {
    const numbers = isCorrupted && subpages.length === 0 ? Array.from({ length: SUBPAGES }, (_, at) => at) : subpages
    for (const subpage of numbers) found.add(page * SUBPAGES + subpage)
  }
  return found
}
