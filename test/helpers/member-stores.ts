/** Stores of the members of an HA cluster over a commit stream in memory: one of them appends, the others apply. */
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import type { StreamPart } from '../../src/ha/stream/commit-message.ts'
import { PublishRefused } from '../../src/ha/stream/commit-stream.ts'
import { StreamApplier } from '../../src/ha/stream/stream-applier.ts'
import { StreamCommitLog } from '../../src/ha/stream/stream-commit-log.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { temporaryDirectory } from './temporary-directory.ts'

const STREAM = 'commits in memory'

export class MemoryStream {
  readonly identity = STREAM
  /** Small, so that orders are stored in parts. */
  readonly messageBytesMax = 16_384
  readonly payloads: Uint8Array[] = []

  async publish({ payload }: StreamPart, last: number): Promise<number> {
    if (last !== this.payloads.length) throw new PublishRefused(`the last message is ${this.payloads.length}`)
    return this.payloads.push(payload)
  }
}

export class MemberStore {
  readonly store: SqliteStore
  readonly path: string
  readonly log: StreamCommitLog
  readonly #stream: MemoryStream

  static async open(t: TestContext, stream: MemoryStream, path = join(temporaryDirectory(t), 'secrets.db')) {
    const member = new MemberStore(await SqliteStore.open(path), stream, path)
    t.after(() => member.store.close())
    return member
  }

  private constructor(store: SqliteStore, stream: MemoryStream, path: string) {
    this.store = store
    this.path = path
    this.#stream = stream
    this.log = new StreamCommitLog(() => store.position(), Date.now)
    store.member.joinCommitLog(this.log)
  }

  /** Applies the stream, and appends from now on. */
  async lead(): Promise<void> {
    await this.follow()
    const last = this.#stream.payloads.length
    this.log.begin({ term: last + 1, stream: this.#stream, last, nextRow: this.store.position().sequence + 1 })
  }

  yield(): void {
    this.log.end()
  }

  /** Applies what the stream has. Rejects with HistoryDiffers. */
  async follow(): Promise<void> {
    const applier = new StreamApplier(this.store, STREAM)
    const from = this.store.member.streamMark?.position ?? 0
    const { payloads } = this.#stream
    for (const [at, payload] of payloads.slice(from).entries()) {
      const sequence = from + at + 1
      await applier.add({ payload, sequence, pending: payloads.length - sequence })
    }
    await applier.flush()
  }
}
