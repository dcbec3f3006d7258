/** The tree of hashes, for those who ask in the main thread. What is asked goes to the thread that keeps it (`tree-keeper.ts`). */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { Worker } from 'node:worker_threads'
import { Fault, messageOf } from '../../platform/errors.ts'
import { yieldIfDue } from '../../platform/scheduler.ts'
import { LOCAL_PREFIX } from '../sqlite/batch.ts'
import { entryCrc } from '../sqlite/entry-crc.ts'
import type { Leaf, MerkleTree, RebuildOptions, SubtreeReport, TreeProgress, TreeReport } from './replica.ts'
import {
  compositeRoot,
  EMPTY_ROOT,
  HASH_BYTES,
  leafBytes,
  leafOf,
  PAGE_HASHES_BYTES,
  PAGES,
  rootOf,
  SUBPAGES,
  subpageHashes,
  subpageOf,
  tailOf,
} from '../merkle/tree.ts'
import { KnownRoot } from '../sqlite/known-root.ts'
import { treeStateIn } from '../merkle/tree-keeper.ts'
import type { EntriesTree, TreeTask, TreeThreadReport } from '../merkle/entries-tree.ts'
import { returnStoreThread, takeStoreThread } from './store-threads.ts'
import type { Mending, TreeAnswer, TreeOrder } from './tree-writer.ts'

/** What is kept lacks entries, or is of another kind of leaves. */
const MAKING: Mending = { kind: 'diff', isLater: false }
/** Paths that are looked at for leaves before others may go on. */
const PATHS_AT_ONCE = 64

interface TreeParts {
  readonly path: string
  readonly reader: DatabaseSync
  /** Reads as all others do. */
  readonly read: <T>(read: () => T) => T
  readonly ask: (order: TreeOrder) => Promise<TreeAnswer>
  /** Of the newest commit that this thread was told of. */
  readonly newest: () => number
}

export class StoreTree implements MerkleTree {
  readonly #parts: TreeParts
  readonly #paths: StatementSync
  readonly #entry: StatementSync
  #isEnabled: boolean
  readonly #root: KnownRoot
  /** Changes of the tree that are no commit of this store. */
  #changes = 0
  /** Looks at everything come one after the other. */
  #looking: Promise<unknown> = Promise.resolve()
  #worker: Worker | undefined
  #isClosed = false

  constructor(parts: TreeParts) {
    this.#parts = parts
    this.#paths = parts.reader.prepare('SELECT path FROM entries WHERE path > ? ORDER BY path LIMIT ?')
    this.#entry = parts.reader.prepare('SELECT sequence, crc, value FROM entries WHERE path = ?')
    this.#isEnabled = treeStateIn(parts.reader) !== 'off'
    this.#root = new KnownRoot(
      async () => compositeRoot(rootOf(await this.pages())),
      () => `${this.#changes} ${parts.newest()}`,
    )
  }

  get isEnabled(): boolean {
    return this.#isEnabled
  }

  async enable(): Promise<void> {
    if (!(await this.#keep())) await this.#look(MAKING)
  }

  async resume(onFailure: (error: unknown) => void): Promise<void> {
    if (await this.#keep()) return
    this.#look(MAKING).catch((error: unknown) => {
      if (this.#isEnabled && !this.#isClosed) onFailure(error)
    })
  }

  /** Whether it is made. */
  async #keep(): Promise<boolean> {
    const { isMade } = await this.#parts.ask({ do: 'keep' })
    this.changed()
    this.#isEnabled = true
    return isMade
  }

  async disable(): Promise<void> {
    await this.#parts.ask({ do: 'drop' })
    this.changed()
    this.#isEnabled = false
  }

  root(): Promise<Buffer> {
    return this.#root.get()
  }

  /** Entries have changed without a commit. */
  changed(): void {
    this.#changes++
  }

  async pages(): Promise<readonly Buffer[]> {
    return pieces(await this.#hashes({ do: 'pages' }), HASH_BYTES)
  }

  async subpages(pages: readonly number[]): Promise<ReadonlyMap<number, readonly Buffer[]>> {
    if (pages.some((page) => !Number.isInteger(page) || page < 0 || page >= PAGES))
      throw new Fault('there is no such page')
    const found = pieces(await this.#hashes({ do: 'subpages', pages }), PAGE_HASHES_BYTES)
    return new Map(pages.map((page, at) => [page, subpageHashes(found[at] ?? Buffer.alloc(PAGE_HASHES_BYTES), 0)]))
  }

  async #hashes(order: TreeOrder): Promise<Uint8Array> {
    const { isMade, hashes } = await this.#parts.ask(order)
    if (!isMade || !hashes) throw new Fault('the tree of hashes is being made')
    return hashes
  }

  async leaves(
    subpages: ReadonlySet<number>,
    after: string,
    limit: number,
  ): Promise<{ leaves: Leaf[]; after: string | undefined }> {
    const leaves: Leaf[] = []
    let last = after
    while (leaves.length < limit) {
      await yieldIfDue()
      const most = Math.min(PATHS_AT_ONCE, limit - leaves.length)
      const paths = this.#parts.read(() => this.#paths.all(last, most)).map(({ path }) => String(path))
      for (const path of paths) {
        last = path
        if (path.startsWith(LOCAL_PREFIX)) continue
        if (!subpages.has(subpageOf(path))) continue
        const row = this.#parts.read(() => this.#entry.get(path))
        if (row) leaves.push({ path, leaf: leafAt(path, row) })
      }
      if (paths.length < most) return { leaves, after: undefined }
    }
    return { leaves, after: last }
  }

  async check(onProgress?: TreeProgress): Promise<TreeReport> {
    const { tree, found } = await this.#look({ kind: 'none' }, onProgress)
    const pages = pieces(found.hashes ?? new Uint8Array(), HASH_BYTES)
    const corrupted = pagesOf(found.damagedPages ?? [], [...(found.wrong ?? []), ...tree.damagedSubpages])
    const root = rootOf(pages)
    const isWrong = (found.wrong?.length ?? 0) > 0 || (found.damagedPages?.length ?? 0) > 0
    return {
      checkedAtMs: Date.now(),
      root: compositeRoot(root),
      isRootCorrupted: isWrong,
      trees: {
        replicated: { root, isRootCorrupted: isWrong, pages: corrupted },
        local: { root: EMPTY_ROOT, isRootCorrupted: false, pages: new Map() },
      },
      damagedPaths: tree.damagedPaths,
      damagedCount: tree.damagedCount,
      entries: tree.entries,
    }
  }

  async rebuild({ diff, skipFlush }: RebuildOptions, onProgress?: TreeProgress): Promise<void> {
    await this.#look({ kind: diff ? 'diff' : 'all', isLater: skipFlush }, onProgress)
  }

  /** Ends what is under way. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#worker?.terminate()
    await this.#looking.catch(() => undefined)
  }

  /** Makes the tree of all entries and has it compared. */
  #look(mend: Mending, onProgress?: TreeProgress): Promise<{ readonly tree: EntriesTree; readonly found: TreeAnswer }> {
    const look = async () => {
      if (this.#isClosed) throw new Fault('the store is closed')
      await this.#parts.ask({ do: 'begin look' })
      try {
        // A thread that begins now would be ended by nothing.
        if (this.#isClosed) throw new Fault('the store is closed')
        const tree = await this.#makeTree(onProgress)
        const { change, hashes } = tree
        const found = await this.#parts.ask({ do: 'compare', change, hashes, mend })
        this.changed()
        return { tree, found }
      } catch (error) {
        await this.#parts.ask({ do: 'end look' }).catch(() => undefined)
        throw error
      }
    }
    const looking = this.#looking.then(look, look)
    this.#looking = looking.catch(() => undefined)
    return looking
  }

  #makeTree(onProgress?: TreeProgress): Promise<EntriesTree> {
    const worker = takeStoreThread()
    const task: TreeTask = { task: 'tree', path: this.#parts.path }
    this.#worker = worker
    return new Promise((resolve, reject) => {
      const fail = (reason: string) => reject(new Fault(`the entries could not be looked at: ${reason}`))
      worker.on('message', (report: TreeThreadReport) => {
        if (report.kind === 'progress') {
          onProgress?.(report.done, report.total)
          return
        }
        // From now on it may do something for another store.
        this.#worker = undefined
        void (report.kind === 'tree' ? returnStoreThread(worker) : worker.terminate())
        if (report.kind === 'tree') resolve(report)
        else fail(report.message)
      })
      worker.once('error', (error) => fail(messageOf(error)))
      worker.once('exit', () => fail('the thread ended'))
      worker.postMessage(task, [])
    })
  }
}

function leafAt(path: string, row: Record<string, unknown>): Buffer {
  const sequence = Number(row['sequence'])
  const value = row['value'] instanceof Uint8Array ? row['value'] : new Uint8Array()
  const said = Number(row['crc'])
  const found = entryCrc(path, sequence, value)
  const leaf = leafOf(path, { sequence, crc: said, tail: tailOf(value) })
  // Of a damaged one, a leaf that no other store has.
  return leafBytes(
    found === said ? leaf : leafOf(`damaged ${said} ${path}`, { sequence, crc: found, tail: tailOf(value) }),
  )
}

function pieces(bytes: Uint8Array, length: number): Buffer[] {
  const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  return Array.from({ length: bytes.length / length }, (_, at) => all.subarray(at * length, (at + 1) * length))
}

function pagesOf(damagedPages: readonly number[], wrong: readonly number[]): SubtreeReport['pages'] {
  const pages = new Map<number, { isCorrupted: boolean; subpages: number[] }>()
  const pageOf = (page: number) => {
    const found = pages.get(page) ?? { isCorrupted: false, subpages: [] }
    pages.set(page, found)
    return found
  }
  for (const page of damagedPages) pageOf(page).isCorrupted = true
  for (const subpage of [...new Set(wrong)].sort((a, b) => a - b))
    pageOf(subpage >> 8).subpages.push(subpage % SUBPAGES)
  return pages
}
