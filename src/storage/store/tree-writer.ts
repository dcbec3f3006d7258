/** What the writer is asked about the tree of hashes (`tree-keeper.ts`), and does for it beside commits. */
import type { DatabaseSync } from 'node:sqlite'
import { PAGES } from '../merkle/tree.ts'
import { type Comparison, TreeKeeper, treeStateIn } from '../merkle/tree-keeper.ts'
import type { Writer } from './writer.ts'

export type TreeOrder =
  | { readonly do: 'keep' | 'drop' | 'pages' | 'begin look' | 'end look' }
  | { readonly do: 'subpages'; readonly pages: readonly number[] }
  | { readonly do: 'compare'; readonly change: number; readonly hashes: Uint8Array; readonly mend: Mending }

/** `diff`: what is wrong. `all`: every page is written, too. `isLater`: pages need not be on the disk for it. */
export type Mending = { readonly kind: 'none' } | { readonly kind: 'diff' | 'all'; readonly isLater: boolean }

export interface TreeAnswer extends Partial<Comparison> {
  /** It is that of the entries. */
  readonly isMade: boolean
  /** What was asked for, one behind the other. */
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

  take(order: TreeOrder): TreeAnswer {
    const { keeper } = this.#writer
    if (order.do === 'keep') return this.#keep()
    if (order.do === 'drop') return this.#drop()
    if (!keeper) throw new Error('no tree of hashes is kept')
    if (order.do === 'compare') return this.#compare(keeper, order.change, order.hashes, order.mend)
    if (order.do === 'begin look') keeper.beginLook()
    if (order.do === 'end look') keeper.endLook()
    const { isMade } = keeper
    if (order.do === 'pages') return { isMade, hashes: keeper.pages() }
    return order.do === 'subpages' ? { isMade, hashes: keeper.subpages(order.pages) } : { isMade }
  }

  /** After a transaction was answered. */
  tidy(): void {
    const { keeper } = this.#writer
    if (!keeper?.isSaveDue) return
    try {
      this.#save(keeper)
    } catch {
      // A full or failing disk: notes go on, and the next transaction tries again.
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

  #compare(keeper: TreeKeeper, change: number, hashes: Uint8Array, mend: Mending): TreeAnswer {
    const { difference, ...found } = keeper.compare(change, hashes)
    keeper.endLook()
    if (mend.kind !== 'none') {
      const pages = mend.kind === 'all' ? Array.from({ length: PAGES }, (_, page) => page) : found.damagedPages
      this.#writer.transact(0, () => keeper.mend(found, difference, pages))
      if (!mend.isLater || pages.length > 0) this.#save(keeper)
    }
    return { isMade: keeper.isMade, ...found, hashes: keeper.pages() }
  }

  #save(keeper: TreeKeeper): void {
    this.#writer.transact(0, () => keeper.save())
  }
}
