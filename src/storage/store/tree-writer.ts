/** The writer's side of the Merkle tree (`tree-updater.ts`): requests of the main thread, and writes of pages between commits. */
import type { DatabaseSync } from 'node:sqlite'
import { PAGES } from '../merkle/tree.ts'
import { type TreeComparison, TreeUpdater, treeStateIn } from '../merkle/tree-updater.ts'
import type { Writer } from './batch-transaction.ts'

export type TreeOrder =
  | { readonly do: 'keep' | 'drop' | 'pages' | 'begin scan' | 'end scan' }
  | { readonly do: 'subpages'; readonly pages: readonly number[] }
  | { readonly do: 'compare'; readonly change: number; readonly hashes: Uint8Array; readonly repair: TreeRepair }

/** `diff` corrects wrong subpages. `all` also writes every page. `isLater`: the pages are written later. */
export type TreeRepair = { readonly kind: 'none' } | { readonly kind: 'diff' | 'all'; readonly isLater: boolean }

export interface TreeAnswer extends Partial<TreeComparison> {
  /** The tree is complete. */
  readonly isMade: boolean
  /** The requested hashes, concatenated. */
  readonly hashes?: Uint8Array
}

export class TreeWriter {
  readonly #database: DatabaseSync
  readonly #writer: Writer

  constructor(database: DatabaseSync, writer: Writer) {
    this.#database = database
    this.#writer = writer
    if (treeStateIn(database) !== 'off') writer.treeUpdater = new TreeUpdater(database)
  }

  execute(order: TreeOrder): TreeAnswer {
    const { treeUpdater } = this.#writer
    if (order.do === 'keep') return this.#keep()
    if (order.do === 'drop') return this.#drop()
    if (!treeUpdater) throw new Error('the Merkle tree is disabled')
    if (order.do === 'compare') return this.#compare(treeUpdater, order.change, order.hashes, order.repair)
    if (order.do === 'begin scan') treeUpdater.beginScan()
    if (order.do === 'end scan') treeUpdater.endScan()
    const { isMade } = treeUpdater
    if (order.do === 'pages') return { isMade, hashes: treeUpdater.pages() }
    return order.do === 'subpages' ? { isMade, hashes: treeUpdater.subpages(order.pages) } : { isMade }
  }

  /** Writes the pages when the notes are long. To be called after the result of a transaction was delivered. */
  saveIfDue(): void {
    const { treeUpdater } = this.#writer
    if (!treeUpdater?.isSaveDue) return
    try {
      this.#save(treeUpdater)
    } catch {
      // A full or failing disk: notes continue, and the next transaction retries.
    }
  }

  #keep(): TreeAnswer {
    if (!this.#writer.treeUpdater) {
      this.#writer.treeUpdater = this.#writer.transact(0, () => new TreeUpdater(this.#database))
    }
    return { isMade: this.#writer.treeUpdater.isMade }
  }

  #drop(): TreeAnswer {
    const { treeUpdater } = this.#writer
    if (treeUpdater) this.#writer.transact(0, () => treeUpdater.drop())
    this.#writer.treeUpdater = undefined
    return { isMade: false }
  }

  #compare(treeUpdater: TreeUpdater, change: number, hashes: Uint8Array, repair: TreeRepair): TreeAnswer {
    const { difference, ...found } = treeUpdater.compare(change, hashes)
    treeUpdater.endScan()
    if (repair.kind !== 'none') {
      const pages = repair.kind === 'all' ? Array.from({ length: PAGES }, (_, page) => page) : found.damagedPages
      this.#writer.transact(0, () => treeUpdater.repair(found, difference, pages))
      if (!repair.isLater || pages.length > 0) this.#save(treeUpdater)
    }
    return { isMade: treeUpdater.isMade, ...found, hashes: treeUpdater.pages() }
  }

  #save(treeUpdater: TreeUpdater): void {
    this.#writer.transact(0, () => treeUpdater.save())
  }
}
