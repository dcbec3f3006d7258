/** The Merkle tree as the main thread sees it. Requests go to the thread that maintains the tree (`tree-updater.ts`). */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { Worker } from 'node:worker_threads'
import { sleep } from '../../platform/clock.ts'
import { Fault, messageOf } from '../../platform/errors.ts'
import { yieldIfDue } from '../../platform/scheduler.ts'
import type { EntriesTree, TreeTask, TreeThreadReport } from '../merkle/entries-tree.ts'
import { treeStateIn } from '../merkle/tree-updater.ts'
import {
  compositeRoot,
  EMPTY_ROOT,
  HASH_BYTES,
  leafBytes,
  leafOf,
  PAGE_HASHES_BYTES,
  PAGES,
  rootOf,
  subpageHashes,
  subpageOf,
  SUBPAGES,
  tailOf,
} from '../merkle/tree.ts'
import { LOCAL_PREFIX } from '../sqlite/batch.ts'
import { entryCrc } from '../sqlite/rows.ts'
import type { Leaf, MerkleTree, RebuildOptions, SubtreeReport, TreeProgress, TreeReport } from './replica.ts'
import { releaseStoreWorker, acquireStoreWorker } from './store-worker-cache.ts'
import type { TreeRepair, TreeAnswer, TreeOrder } from './tree-writer.ts'

/** For a tree that lacks entries, or has leaves of an older version. */
const BUILD: TreeRepair = { kind: 'diff', isLater: false }
/** Paths that are read for leaves before the event loop continues. */
const PATHS_PER_STEP = 64

interface TreeParts {
  readonly path: string
  readonly reader: DatabaseSync
  /** Runs a read in the store's read transaction. */
  readonly read: <T>(read: () => T) => T
  readonly request: (order: TreeOrder) => Promise<TreeAnswer>
  /** Sequence of the newest commit that this thread knows. */
  readonly newest: () => number
}

export class StoreTree implements MerkleTree {
  readonly #parts: TreeParts
  readonly #paths: StatementSync
  readonly #entry: StatementSync
  #isEnabled: boolean
  readonly #root: RootCache
  /** Counts changes of the tree other than commits. */
  #changes = 0
  /** Scans run one after the other. */
  #scanning: Promise<unknown> = Promise.resolve()
  #worker: Worker | undefined
  #isClosed = false

  constructor(parts: TreeParts) {
    this.#parts = parts
    this.#paths = parts.reader.prepare('SELECT path FROM entries WHERE path > ? ORDER BY path LIMIT ?')
    this.#entry = parts.reader.prepare('SELECT sequence, crc, value FROM entries WHERE path = ?')
    this.#isEnabled = treeStateIn(parts.reader) !== 'off'
    this.#root = new RootCache(
      async () => compositeRoot(rootOf(await this.pages())),
      () => `${this.#changes} ${parts.newest()}`,
    )
  }

  get isEnabled(): boolean {
    return this.#isEnabled
  }

  async enable(): Promise<void> {
    if (!(await this.#maintain())) await this.#scan(BUILD)
  }

  async resume(onFailure: (error: unknown) => void): Promise<void> {
    if (await this.#maintain()) return
    this.#scan(BUILD).catch((error: unknown) => {
      if (this.#isEnabled && !this.#isClosed) onFailure(error)
    })
  }

  /** Resolves to true for a complete tree. */
  async #maintain(): Promise<boolean> {
    const { isMade } = await this.#parts.request({ do: 'keep' })
    this.changed()
    this.#isEnabled = true
    return isMade
  }

  async disable(): Promise<void> {
    await this.#parts.request({ do: 'drop' })
    this.changed()
    this.#isEnabled = false
  }

  root(): Promise<Buffer> {
    return this.#root.get()
  }

  /** Must be called when entries have changed without a commit. */
  changed(): void {
    this.#changes++
  }

  async pages(): Promise<readonly Buffer[]> {
    return sliced(await this.#hashes({ do: 'pages' }), HASH_BYTES)
  }

  async subpages(pages: readonly number[]): Promise<ReadonlyMap<number, readonly Buffer[]>> {
    if (pages.some((page) => !Number.isInteger(page) || page < 0 || page >= PAGES))
      throw new Fault('invalid page number')
    const found = sliced(await this.#hashes({ do: 'subpages', pages }), PAGE_HASHES_BYTES)
    return new Map(pages.map((page, at) => [page, subpageHashes(found[at] ?? Buffer.alloc(PAGE_HASHES_BYTES), 0)]))
  }

  async #hashes(order: TreeOrder): Promise<Uint8Array> {
    const { isMade, hashes } = await this.#parts.request(order)
    if (!isMade || !hashes) throw new Fault('the Merkle tree is being built')
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
      const most = Math.min(PATHS_PER_STEP, limit - leaves.length)
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
    const { tree, found } = await this.#scan({ kind: 'none' }, onProgress)
    const pages = sliced(found.hashes ?? new Uint8Array(), HASH_BYTES)
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
    await this.#scan({ kind: diff ? 'diff' : 'all', isLater: skipFlush }, onProgress)
  }

  /** Ends a running scan. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#worker?.terminate()
    await this.#scanning.catch(() => undefined)
  }

  /** Builds the tree of all entries in a worker and compares it with the maintained one. */
  #scan(
    repair: TreeRepair,
    onProgress?: TreeProgress,
  ): Promise<{ readonly tree: EntriesTree; readonly found: TreeAnswer }> {
    const scan = async () => {
      if (this.#isClosed) throw new Fault('the store is closed')
      await this.#parts.request({ do: 'begin scan' })
      try {
        // `close` would not end a worker that starts now.
        if (this.#isClosed) throw new Fault('the store is closed')
        const tree = await this.#buildTree(onProgress)
        const { change, hashes } = tree
        const found = await this.#parts.request({ do: 'compare', change, hashes, repair })
        this.changed()
        return { tree, found }
      } catch (error) {
        await this.#parts.request({ do: 'end scan' }).catch(() => undefined)
        throw error
      }
    }
    const scanning = this.#scanning.then(scan, scan)
    this.#scanning = scanning.catch(() => undefined)
    return scanning
  }

  #buildTree(onProgress?: TreeProgress): Promise<EntriesTree> {
    const worker = acquireStoreWorker()
    const task: TreeTask = { task: 'tree', path: this.#parts.path }
    this.#worker = worker
    return new Promise((resolve, reject) => {
      const fail = (reason: string) => reject(new Fault(`the entries could not be scanned: ${reason}`))
      worker.on('message', (report: TreeThreadReport) => {
        if (report.kind === 'progress') {
          onProgress?.(report.done, report.total)
          return
        }
        // Released below: it may serve another store. After `close` it is being terminated, and a release would remove the listener
        // for its exit, which `close` waits for.
        this.#worker = undefined
        const isReusable = report.kind === 'tree' && !this.#isClosed
        void (isReusable ? releaseStoreWorker(worker) : worker.terminate())
        if (report.kind === 'tree') resolve(report)
        else fail(report.message)
      })
      worker.once('error', (error) => fail(messageOf(error)))
      worker.once('exit', () => fail('the worker exited'))
      worker.postMessage(task, [])
    })
  }
}

function leafAt(path: string, row: Record<string, unknown>): Buffer {
  const sequence = Number(row['sequence'])
  const value = row['value'] instanceof Uint8Array ? row['value'] : new Uint8Array()
  const storedCrc = Number(row['crc'])
  const actualCrc = entryCrc(path, sequence, value)
  const leaf = leafOf(path, { sequence, crc: storedCrc, tail: tailOf(value) })
  // A damaged entry gets a leaf that no other store has.
  return leafBytes(
    actualCrc === storedCrc
      ? leaf
      : leafOf(`damaged ${storedCrc} ${path}`, { sequence, crc: actualCrc, tail: tailOf(value) }),
  )
}

function sliced(bytes: Uint8Array, length: number): Buffer[] {
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

/** Minimum pause between two requests to the writer's thread. */
const PAUSE_MS = 50

/**
 * Caches the root of the Merkle tree. The writer's thread gets a request only when the tree has changed since its last response, one at a
 * time, with a minimum pause. A caller gets a root that is not older than its call.
 */
export class RootCache {
  readonly #request: () => Promise<Buffer>
  readonly #version: () => string
  #known: { readonly version: string; readonly root: Buffer } | undefined
  /** Shared by the callers whose request has not been sent yet. */
  #next: Promise<Buffer> | undefined
  #requested: Promise<unknown> = Promise.resolve()
  #respondedAtMs = Number.NEGATIVE_INFINITY

  /** `version` changes with each change of the tree that this thread knows. */
  constructor(request: () => Promise<Buffer>, version: () => string) {
    this.#request = request
    this.#version = version
  }

  /** Rejects with the error of the request. */
  get(): Promise<Buffer> {
    if (this.#known?.version === this.#version()) return Promise.resolve(this.#known.root)
    return (this.#next ??= this.#fetch())
  }

  async #fetch(): Promise<Buffer> {
    await this.#requested
    const waitMs = this.#respondedAtMs + PAUSE_MS - performance.now()
    if (waitMs > 0) await sleep(waitMs)
    this.#next = undefined
    const version = this.#version()
    const requested = this.#request()
    this.#requested = requested.catch(() => undefined)
    try {
      const root = await requested
      // After a concurrent change the root may be of either state.
      if (version === this.#version()) this.#known = { version, root }
      return root
    } finally {
      this.#respondedAtMs = performance.now()
    }
  }
}
