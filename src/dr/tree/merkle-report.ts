/** What a look at the trees of hashes found, as `merkle-check` tells it. */
import type { TreeReport } from '../../storage/store/replica.ts'

export type MerkleReport = ReturnType<typeof merkleReport>

/** As reference clients know it: pages by number, trees by number. */
export function merkleReport(report: TreeReport) {
  const { replicated, local } = report.trees
  return {
    merkle_corruption_report: {
      corrupted_root: report.isRootCorrupted,
      corrupted_tree_map: { '1': subtree(replicated, 'replicated'), '2': subtree(local, 'local') },
      last_corruption_check_epoch: new Date(report.checkedAtMs).toISOString(),
      damaged_entries: report.damagedCount,
      checked_entries: report.entries,
    },
  }
}

/** True when anything at all is not as it should be. */
export function isCorrupted(report: TreeReport): boolean {
  const { replicated, local } = report.trees
  const trees = [replicated, local]
  return (
    report.isRootCorrupted || report.damagedCount > 0 || trees.some((one) => one.isRootCorrupted || one.pages.size > 0)
  )
}

function subtree({ root, isRootCorrupted, pages }: TreeReport['trees']['local'], type: string) {
  const map = Object.fromEntries(
    [...pages].map(([page, { isCorrupted: corrupted, subpages }]) => [String(page), { corrupted, subpages }]),
  )
  return {
    corrupted_index_tuples_map: pages.size === 0 ? null : map,
    corrupted_subtree_root: isRootCorrupted,
    root_hash: root.toString('base64'),
    tree_type: type,
  }
}
