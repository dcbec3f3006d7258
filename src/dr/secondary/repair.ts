/**
 * A connected secondary checks all its entries periodically and repairs from its primary those that disk damage or another program
 * changed. The log continues meanwhile: an entry is written as the primary had it at one moment, and skipped when a row changed it since.
 *
 * The check compares the entries with this cluster's own tree. A program that changes an entry can change the tree too, and
 * a reindex rebuilds the tree from the entries: only a comparison with the primary's tree finds that (`isCompared`).
 */
import type { Logger } from '../../platform/log.ts'
import { sleep } from '../../platform/clock.ts'
import type { ReplicaStore, TreeReport } from '../../storage/store/replica.ts'
import { EntryCopier, differingSubpages, type CopyProgress } from './merkle-sync.ts'
import type { LinkClient } from '../link/link.ts'

const SUBPAGES = 256
const APPLIED_POLL_MS = 20

export interface RepairContext {
  readonly link: LinkClient
  readonly store: ReplicaStore
  readonly logger: Logger
  readonly answerMs: number
  readonly signal: AbortSignal
  /** Also compare with the primary's tree. */
  readonly isCompared: boolean
}

/** Resolves to the report of the check, or of the check after the repair. */
export async function checkAndRepair(context: RepairContext): Promise<TreeReport> {
  const { link, store, logger, answerMs, signal, isCompared } = context
  const report = await store.tree.check()
  const subpages = corruptedIn(report)
  if (isCompared) for (const subpage of await differingSubpages(context)) subpages.add(subpage)
  if (subpages.size === 0) return report
  logger.warn('entries differ from the log, comparing them with the primary', {
    subpages: subpages.size,
    damaged: report.damagedCount,
  })
  const progress: CopyProgress = { found: 0, done: 0, bytes: 0 }
  const onDamaged = (paths: readonly string[]) =>
    logger.error('entries are damaged on the primary too', { paths: paths.slice(0, 10).join(', ') })
  const copy = new EntryCopier({
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
        await sleep(APPLIED_POLL_MS, signal)
      }
      await store.repairEntries(puts, deletes, asOf)
    },
  })
  await copy.run(subpages)
  await store.tree.rebuild({ diff: true, skipFlush: false })
  logger.warn('entries repaired from the primary', { entries: progress.done, bytes: progress.bytes })
  return store.tree.check()
}

/** Numbers of corrupted subpages; all subpages of an unreadable page. */
function corruptedIn(report: TreeReport): Set<number> {
  const found = new Set<number>()
  for (const [page, { isCorrupted: isPageCorrupted, subpages }] of report.trees.replicated.pages) {
    const numbers =
      isPageCorrupted && subpages.length === 0 ? Array.from({ length: SUBPAGES }, (_, at) => at) : subpages
    for (const subpage of numbers) found.add(page * SUBPAGES + subpage)
  }
  return found
}

export function isCorrupted(report: TreeReport): boolean {
  const { replicated, local } = report.trees
  const trees = [replicated, local]
  return (
    report.isRootCorrupted || report.damagedCount > 0 || trees.some((one) => one.isRootCorrupted || one.pages.size > 0)
  )
}
