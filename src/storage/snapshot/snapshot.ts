/**
 * Snapshots: everything that a store holds at one moment, but for what belongs to its machine alone, as one stream of
 * bytes. It is ciphertext as it lies in the database: whoever restores it needs the same key shares.
 *
 * Saving copies the entries of one moment into a file that has no name, as fast as the disk can, and sends that: a slow
 * receiver keeps nobody waiting and no old state alive. Restoring receives into such a file, looks at all of it, and puts
 * it in the place of what there was in one transaction, so that a process that is killed at any moment has the one state
 * or the other. Both use bounded memory and the disk space of one more copy.
 */
import { createHash, randomUUID } from 'node:crypto'
import { close, open, read, unlink, write } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { constants, createGunzip, createGzip } from 'node:zlib'
import { Fault, isErrno, messageOf, Refusal } from '../../platform/errors.ts'
import {
  damagedSnapshot,
  decodeMeta,
  encodeMeta,
  MEMBERS,
  type Member,
  paddingOf,
  readTarHeader,
  SMALL_MEMBER_BYTES_MAX,
  type SnapshotMeta,
  TAR_BLOCK_BYTES,
  tarHeader,
} from './format/snapshot-archive.ts'
import { noSpace, StoreError } from '../sqlite/store-error.ts'
import type { Copied } from './format/snapshot-records.ts'
import type { CopyReport, CopyTask } from '../store/snapshot-copy.ts'
import { returnStoreThread, takeStoreThread } from '../store/store-threads.ts'
import type { SqliteStore } from '../store/store.ts'

export type { SnapshotMeta } from './format/snapshot-archive.ts'

/** Bytes of entries that have been sent or received, of how many. */
export type Progress = (doneBytes: number, totalBytes: number) => void

export interface SnapshotOptions {
  readonly onProgress?: Progress
  /** Ends it: nothing has changed then. */
  readonly signal?: AbortSignal
}

export interface RestoreOptions extends SnapshotOptions {
  /** Also the snapshot of another cluster. */
  readonly force?: boolean
  /** Called at the moment from which on the other entries are there: what was remembered of those before holds no more. */
  readonly onReplaced?: () => void
  /** Paths without which it is refused. */
  readonly requires?: readonly string[]
  /** Called with what puts the snapshot in place, once all of it has arrived: to do so in a turn of the caller's, or not. */
  readonly inTurn?: (replace: () => Promise<void>) => Promise<void>
}

const CHUNK_BYTES = 512 << 10
const openFile = promisify(open)
const closeFile = promisify(close)
const unlinkFile = promisify(unlink)
const readFile = promisify(read)
const writeFile = promisify(write)

/**
 * Writes a snapshot and ends the stream. Rejects, before the first byte, with a Fault when there is no space for the copy
 * or an entry is damaged. Resolves with what the snapshot says of itself.
 */
export async function saveSnapshot(
  store: SqliteStore,
  out: Writable,
  { onProgress, signal }: SnapshotOptions = {},
): Promise<SnapshotMeta> {
  refuseDisplaced(store)
  if (!store.isWhole)
    throw new Refusal('unavailable', 'this store is being copied from its primary: take the snapshot there')
  return withCopy(store.path, async (fd, copied) => {
    const gzip = createGzip({ level: constants.Z_NO_COMPRESSION, chunkSize: CHUNK_BYTES })
    await pipeline(archiveOf(copied, fd, onProgress), gzip, out, { ...(signal && { signal }) })
    return copied.meta
  })
}

/**
 * Puts a snapshot in the place of everything there is. Rejects with a Refusal, and nothing has changed, for what is no
 * whole snapshot, for a newer one, and for one of another cluster unless `force` is set or the store is empty; with a
 * StoreError when the disk refuses. While it is put in place commits are refused (`busy`); afterwards the store is in a
 * new epoch and its listeners were called (`Store.onFailure`): the barrier goes on if its root key opens the keyring that
 * came, and is sealed otherwise. Whoever holds more in memory (mounts, policies, tokens) begins anew.
 */
export async function restoreSnapshot(
  store: SqliteStore,
  input: Readable,
  {
    onProgress,
    onReplaced,
    signal,
    requires = [],
    force = false,
    inTurn = (replace) => replace(),
  }: RestoreOptions = {},
): Promise<SnapshotMeta> {
  refuseDisplaced(store)
  return withSpaceSaid(store.path, async (fd) => {
    const receiver = new Receiver(fd, onProgress, (meta) => {
      if (force || meta.clusterId === store.clusterId || store.isEmpty) return
      throw new Refusal('invalid_request', 'the snapshot is of another cluster: restore it with force if that is meant')
    })
    try {
      const receive = (chunks: AsyncIterable<Buffer>) => receiver.receive(chunks)
      const received = pipeline(input, createGunzip({ chunkSize: CHUNK_BYTES }), receive, { ...(signal && { signal }) })
      // A source that stands still is not waited for: it would hold the file, and whoever waits for its turn, for ever.
      await (signal ? Promise.race([received, aborted(signal)]) : received)
    } catch (error) {
      await receiver.stop()
      const code = error instanceof Error && 'code' in error ? String(error.code) : ''
      throw code.startsWith('Z_') ? damagedSnapshot('it is cut, or no archive at all') : error
    }
    const { meta, sha256 } = receiver.end()
    await inTurn(() => store.restore(fd, { meta, sha256, requires }, onReplaced))
    return meta
  })
}

/** The copy is made by another connection, which would open what has the name now. */
function refuseDisplaced({ fault }: SqliteStore): void {
  if (fault) throw new Refusal('unavailable', fault.text)
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const fail = () => reject(new Fault('the caller of the restore has left'))
    if (signal.aborted) fail()
    else signal.addEventListener('abort', fail, { once: true })
  })
}

/** The disk of the database may be full; on a Linux host the last one is memory. */
const SPOOLS = [dirname, tmpdir, () => '/dev/shm']

/** The copy lies beside the database, or where there is space: it is ciphertext, in a file without a name. */
async function withCopy<T>(path: string, work: (fd: number, copied: Copied) => Promise<T>): Promise<T> {
  for (const directoryOf of SPOOLS) {
    let isCopied = false
    try {
      return await withSpool(join(directoryOf(path), basename(path)), async (fd) => {
        const copied = await copyApart(path, fd)
        isCopied = true
        return await work(fd, copied)
      })
    } catch (error) {
      if (isCopied || !isFull(error)) throw error
    }
  }
  throw new Refusal('insufficient_storage', noSpace(dirname(path)))
}

/** As `withSpool`; a disk that is full is a Refusal. */
async function withSpaceSaid<T>(path: string, work: (fd: number) => Promise<T>): Promise<T> {
  try {
    return await withSpool(path, work)
  } catch (error) {
    const isRefused = isFull(error) || (error instanceof StoreError && error.kind === 'full')
    throw isRefused ? new Refusal('insufficient_storage', noSpace(dirname(path))) : error
  }
}

function isFull(error: unknown): boolean {
  return isErrno(error, 'ENOSPC', 'EDQUOT') || (error instanceof Fault && /ENOSPC|EDQUOT/.test(error.message))
}

/** A file beside the database that has no name: it is gone with the process. */
async function withSpool<T>(path: string, work: (fd: number) => Promise<T>): Promise<T> {
  const name = `${path}.snapshot-${randomUUID()}`
  const fd = await openFile(name, 'wx+', 0o600)
  try {
    await unlinkFile(name)
    return await work(fd)
  } finally {
    await closeFile(fd)
  }
}

function copyApart(path: string, fd: number): Promise<Copied> {
  return new Promise((resolve, reject) => {
    const worker = takeStoreThread()
    const task: CopyTask = { task: 'copy', path, fd }
    const fail = (reason: string) => reject(new Fault(`no snapshot was taken: ${reason}`))
    worker.once('message', (report: CopyReport) => {
      void ('copied' in report ? returnStoreThread(worker) : worker.terminate())
      if ('copied' in report) resolve(report.copied)
      else fail(report.failure)
    })
    worker.once('error', (error) => fail(messageOf(error)))
    worker.once('exit', () => fail('the copy ended'))
    worker.postMessage(task, [])
  })
}

async function* archiveOf({ meta, sha256 }: Copied, fd: number, onProgress?: Progress): AsyncGenerator<Buffer> {
  const described = encodeMeta(meta)
  const sums = Buffer.from(`${sha256Of(described)}  meta.json\n${sha256}  state.bin\n`)
  const member = (name: Member, content: Buffer) => {
    const padding = Buffer.alloc(paddingOf(content.length))
    return Buffer.concat([tarHeader(name, content.length, meta.takenAtMs), content, padding])
  }
  yield member('meta.json', described)
  yield tarHeader('state.bin', meta.bytes, meta.takenAtMs)
  for (let at = 0; at < meta.bytes; ) {
    const chunk = await readAt(fd, at, Math.min(CHUNK_BYTES, meta.bytes - at))
    at += chunk.length
    yield chunk
    onProgress?.(at, meta.bytes)
  }
  yield Buffer.alloc(paddingOf(meta.bytes))
  yield member('SHA256SUMS', sums)
  yield member('SHA256SUMS.sealed', Buffer.from(`${sha256Of(sums)}\n`))
  yield Buffer.alloc(2 * TAR_BLOCK_BYTES)
}

async function readAt(fd: number, at: number, bytes: number): Promise<Buffer> {
  const { bytesRead, buffer } = await readFile(fd, Buffer.alloc(bytes), 0, bytes, at)
  if (bytesRead === 0) throw new Fault('the copy of the entries is cut')
  return buffer.subarray(0, bytesRead)
}

function sha256Of(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** Takes an archive apart as it comes: small members into memory, the entries into the file. */
class Receiver {
  readonly #fd: number
  readonly #onProgress: Progress | undefined
  readonly #accept: (meta: SnapshotMeta) => void
  readonly #small = new Map<Member, Buffer>()
  #meta: SnapshotMeta | undefined
  #rest: Buffer = Buffer.alloc(0)
  /** What is being received, and how much of it is missing; none between members. */
  #current: { readonly name: Member; left: number; padding: number; at: number } | undefined
  /** Members that have begun. */
  #begun = 0
  #isOver = false
  #isStopped = false
  #writing: Promise<unknown> | undefined

  constructor(fd: number, onProgress: Progress | undefined, accept: (meta: SnapshotMeta) => void) {
    this.#fd = fd
    this.#onProgress = onProgress
    this.#accept = accept
  }

  async receive(chunks: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of chunks) {
      this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk])
      while (await this.#step());
    }
  }

  /** Resolves once the file is written to no more. */
  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#writing?.catch(() => undefined)
  }

  /** What came, when all of it has come. */
  end(): { meta: SnapshotMeta; sha256: string } {
    const sums = this.#small.get('SHA256SUMS')
    const seal = this.#small.get('SHA256SUMS.sealed')
    const described = this.#small.get('meta.json')
    if (!this.#meta || !described || !sums || !seal || !this.#isOver) throw damagedSnapshot('it is cut')
    const [, ofMeta, ofState] =
      /^([0-9a-f]{64}) {2}meta\.json\n([0-9a-f]{64}) {2}state\.bin\n$/.exec(sums.toString()) ?? []
    if (ofMeta !== sha256Of(described) || !ofState || seal.toString().trim() !== sha256Of(sums)) {
      throw damagedSnapshot('its checksums do not fit')
    }
    return { meta: this.#meta, sha256: ofState }
  }

  /** Takes one piece off what has come; false when more must come first. */
  async #step(): Promise<boolean> {
    const current = this.#current
    if (this.#isOver) {
      if (this.#rest.some((byte) => byte !== 0)) throw damagedSnapshot('something follows it')
      this.#rest = Buffer.alloc(0)
      return false
    }
    if (!current) return this.#begin()
    const piece = this.#rest.subarray(0, current.left)
    if (piece.length > 0) {
      await this.#keep(current.name, piece, current.at)
      current.left -= piece.length
      current.at += piece.length
      this.#rest = this.#rest.subarray(piece.length)
      return true
    }
    if (current.left > 0 || this.#rest.length < current.padding) return false
    this.#rest = this.#rest.subarray(current.padding)
    this.#current = undefined
    if (current.name === 'meta.json') {
      this.#meta = decodeMeta(this.#small.get('meta.json') ?? Buffer.alloc(0))
      this.#accept(this.#meta)
    }
    return true
  }

  #begin(): boolean {
    if (this.#rest.length < TAR_BLOCK_BYTES) return false
    const header = readTarHeader(this.#rest.subarray(0, TAR_BLOCK_BYTES))
    this.#rest = this.#rest.subarray(TAR_BLOCK_BYTES)
    const expected = MEMBERS[this.#begun]
    if (!header) {
      this.#isOver = true
      return true
    }
    const { name, size } = header
    if (name !== expected) throw damagedSnapshot('its parts are others than those of a snapshot')
    if (expected === 'state.bin') {
      if (size !== this.#meta?.bytes) throw damagedSnapshot('its entries are not as many as it says')
    } else if (size > SMALL_MEMBER_BYTES_MAX) throw damagedSnapshot(`${expected} is too large`)
    else this.#small.set(expected, Buffer.alloc(0))
    this.#begun++
    this.#current = { name: expected, left: size, padding: paddingOf(size), at: 0 }
    return true
  }

  async #keep(name: Member, piece: Buffer, at: number): Promise<void> {
    if (name !== 'state.bin') {
      this.#small.set(name, Buffer.concat([this.#small.get(name) ?? Buffer.alloc(0), piece]))
      return
    }
    for (let done = 0; done < piece.length; ) {
      if (this.#isStopped) throw new Fault('the restore has ended')
      const writing = writeFile(this.#fd, piece, done, piece.length - done, at + done)
      this.#writing = writing
      done += (await writing).bytesWritten
    }
    this.#onProgress?.(at + piece.length, this.#meta?.bytes ?? 0)
  }
}
