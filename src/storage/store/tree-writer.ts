/** The writer's side of the Merkle tree (`tree-keeper.ts`): requests of the main thread, and writes of pages between commits. */
import type { DatabaseSync } from 'node:sqlite'
import { PAGES } from '../merkle/tree.ts'
import { type TreeComparison, TreeKeeper, treeStateIn } from '../merkle/tree-keeper.ts'
import type { Writer } from './writer.ts'

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
    if (treeStateIn(database) !== 'off') writer.keeper = new TreeKeeper(database)
  }

  execute(order: TreeOrder): TreeAnswer {
    const { keeper } = this.#writer
    if (order.do === 'keep') return this.#keep()
    if (order.do === 'drop') return this.#drop()
    if (!keeper) throw new Error('the Merkle tree is disabled')
    if (order.do === 'compare') return this.#compare(keeper, order.change, order.hashes, order.repair)
    if (order.do === 'begin scan') keeper.beginScan()
    if (order.do === 'end scan') keeper.endScan()
    const { isMade } = keeper
    if (order.do === 'pages') return { isMade, hashes: keeper.pages() }
    return order.do === 'subpages' ? { isMade, hashes: keeper.subpages(order.pages) } : { isMade }
  }

  /** Writes the pages when the notes are long. To be called after the result of a transaction was delivered. */
  saveIfDue(): void {
    const { keeper } = this.#writer
    if (!keeper?.isSaveDue) return
    try {
      this.#save(keeper)
    } catch {
      // A full or failing disk: notes continue, and the next transaction retries.
    }
  }

  #keep(): TreeAnswer {
    if (!this.#writer.keeper) {
      this.#writer.keeper = this.#writer.transact(0, () => new TreeKeeper(this.#database))
    }
    return { isMade: this.#writer.keeper.isMade }
  }

  #drop(): TreeAnswer {
    const { keeper } = this.#writer
    if (keeper) this.#writer.transact(0, () => keeper.drop())
    this.#writer.keeper = undefined
    return { isMade: false }
  }

  #compare(keeper: TreeKeeper, change: number, hashes: Uint8Array, repair: TreeRepair): TreeAnswer {
    const { difference, ...found } = keeper.compare(change, hashes)
    keeper.endScan()
    if (repair.kind !== 'none') {
      const pages = repair.kind === 'all' ? Array.from({ length: PAGES }, (_, page) => page) : found.damagedPages
      this.#writer.transact(0, () => keeper.repair(found, difference, pages))
      if (!repair.isLater || pages.length > 0) this.#save(keeper)
    }
    return { isMade: keeper.isMade, ...found, hashes: keeper.pages() }
  }

  #save(keeper: TreeKeeper): void {
    this.#writer.transact(0, () => keeper.save())
  }
}
