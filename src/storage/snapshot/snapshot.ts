/**
 * Snapshots: all entries of a store at one point in time, except local ones, as one stream of bytes. The entries are ciphertext, so
 * unsealing a restored server takes the same key shares.
 *
 * Saving copies the entries into an unlinked file at the speed of the disk and sends that file, so a slow receiver neither blocks
 * writers nor keeps an old state of the database alive. Restoring receives into such a file, verifies all of it, and replaces the content
 * of the database in one transaction, so a process that is killed at any time has either state completely. Both use bounded memory and
 * the disk space of one copy.
 */
import { randomUUID } from 'node:crypto'
import { close, open, read, unlink, write } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { constants, createGzip } from 'node:zlib'
import { Fault, isErrno, messageOf, Refusal } from '../../platform/errors.ts'
import { ArchiveReceiver, type EntrySink, sha256Of } from './format/archive-receiver.ts'
import { encodeMeta, type ArchiveMember, type SnapshotMeta } from './format/snapshot-archive.ts'
import { paddingOf, TAR_END, tarHeader, tarMember } from '../../platform/tar.ts'
import { noSpace, StoreError } from '../sqlite/store-error.ts'
import type { SnapshotCopy } from './format/snapshot-records.ts'
import type { SnapshotCopyReport, SnapshotCopyTask } from '../store/snapshot-entries.ts'
import { releaseStoreWorker, acquireStoreWorker } from '../store/store-worker-cache.ts'
import type { SqliteStore } from '../store/store.ts'

export type { SnapshotMeta } from './format/snapshot-archive.ts'

/** Bytes of entries that were sent or received, and their total. */
export type SnapshotProgress = (doneBytes: number, totalBytes: number) => void

export interface SnapshotOptions {
  /** Version of the program, for the metadata. */
  readonly programVersion?: string
  readonly onProgress?: SnapshotProgress
  /** Aborts it; then nothing has changed. */
  readonly signal?: AbortSignal
}

export interface SnapshotRestoreOptions extends SnapshotOptions {
  /** Accepts the snapshot of another cluster. */
  readonly force?: boolean
  /** Called once the restored entries are visible: cached state of the earlier entries is then obsolete. */
  readonly onReplaced?: () => void
  /** Paths that the snapshot must have. */
  readonly requires?: readonly string[]
  /** Called once the whole snapshot has arrived, with the function that replaces the entries: runs it under the caller's lock. */
  readonly withLock?: (replace: () => Promise<void>) => Promise<void>
}

const CHUNK_BYTES = 512 << 10
const openFile = promisify(open)
const closeFile = promisify(close)
const unlinkFile = promisify(unlink)
const readFile = promisify(read)
const writeFile = promisify(write)

/**
 * Writes a snapshot and ends the stream. Rejects before the first byte with a Fault when there is no space for the copy, or an entry
 * is damaged. Resolves to the metadata of the snapshot.
 */
export async function saveSnapshot(
  store: SqliteStore,
  out: Writable,
  { onProgress, programVersion, signal }: SnapshotOptions = {},
): Promise<SnapshotMeta> {
  refuseDisplaced(store)
  if (!store.isWhole)
    throw new Refusal('unavailable', 'the initial sync of this store is not complete: take the snapshot on its primary')
  return withCopy(store.path, async (fd, copied) => {
    const gzip = createGzip({ level: constants.Z_NO_COMPRESSION, chunkSize: CHUNK_BYTES })
    const meta = { ...copied.meta, ...(programVersion !== undefined && { programVersion }) }
    const archive = archiveOf({ ...copied, meta }, fd, onProgress)
    await pipeline(archive, gzip, out, { ...(signal && { signal }) })
    return meta
  })
}

/**
 * Replaces all entries by those of a snapshot. Rejects with a Refusal, and then nothing has changed, for an incomplete or damaged
 * snapshot, for one of a newer version, and for one of another cluster unless `force` is set or the store is empty; with a StoreError
 * for an error of the disk. Commits are refused (`busy`) during the transaction. Afterwards the store is in a new epoch, and its failure
 * listeners were called (`Store.onFailure`): the barrier stays open if its root key opens the restored keyring, and is sealed otherwise.
 * The caller must reload other cached state (mounts, policies, tokens).
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
    withLock = (replace) => replace(),
  }: SnapshotRestoreOptions = {},
): Promise<SnapshotMeta> {
  refuseDisplaced(store)
  return withRestoreSpool(store.path, async (fd) => {
    let totalBytes = 0
    const sink = new SpoolSink(fd, (doneBytes) => onProgress?.(doneBytes, totalBytes))
    const receiver = new ArchiveReceiver(sink, (meta) => {
      totalBytes = meta.bytes
      if (force || meta.clusterId === store.clusterId || store.isEmpty) return
      throw new Refusal(
        'invalid_request',
        'the snapshot is from another cluster: restore it with force if this is intended',
      )
    })
    try {
      const received = receiver.receive(input, signal)
      // An aborted restore must not wait for a stalled source, which would keep the file open.
      await (signal ? Promise.race([received, aborted(signal)]) : received)
    } catch (error) {
      await sink.stop()
      throw error
    }
    const { meta, sha256 } = receiver.end()
    await withLock(() => store.restore(fd, { meta, sha256, requires }, onReplaced))
    return meta
  })
}

/** The copy uses another connection, which would open a file that replaced the database. */
function refuseDisplaced({ fault }: SqliteStore): void {
  if (fault) throw new Refusal('unavailable', fault.text)
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const fail = () => reject(new Fault('the client of the restore disconnected'))
    if (signal.aborted) fail()
    else signal.addEventListener('abort', fail, { once: true })
  })
}

/** Directories for the copy, in this order: the disk of the database may be full. The last one is memory on Linux. */
const SPOOL_DIRECTORIES = [dirname, tmpdir, () => '/dev/shm']

/** Copies into the first directory with enough space. The copy is ciphertext in an unlinked file. */
async function withCopy<T>(path: string, work: (fd: number, copied: SnapshotCopy) => Promise<T>): Promise<T> {
  for (const directoryOf of SPOOL_DIRECTORIES) {
    let isCopied = false
    try {
      return await withSpool(join(directoryOf(path), basename(path)), async (fd) => {
        const copied = await copyInWorker(path, fd)
        isCopied = true
        return await work(fd, copied)
      })
    } catch (error) {
      if (isCopied || !isFull(error)) throw error
    }
  }
  throw new Refusal('insufficient_storage', noSpace(dirname(path)))
}

/** As `withSpool`, for a restore: a full disk is a Refusal, and the Refusal of a snapshot says that nothing was changed. */
async function withRestoreSpool<T>(path: string, work: (fd: number) => Promise<T>): Promise<T> {
  try {
    return await withSpool(path, work)
  } catch (error) {
    if (error instanceof Refusal && error.code === 'invalid_request') {
      throw new Refusal(error.code, `${error.message}; nothing was changed`)
    }
    const isRefused = isFull(error) || (error instanceof StoreError && error.kind === 'full')
    throw isRefused ? new Refusal('insufficient_storage', noSpace(dirname(path))) : error
  }
}

function isFull(error: unknown): boolean {
  return isErrno(error, 'ENOSPC', 'EDQUOT') || (error instanceof Fault && /ENOSPC|EDQUOT/.test(error.message))
}

/** An unlinked file beside `path`: the kernel frees it when the process ends. */
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

function copyInWorker(path: string, fd: number): Promise<SnapshotCopy> {
  return new Promise((resolve, reject) => {
    const worker = acquireStoreWorker()
    const task: SnapshotCopyTask = { task: 'copy', path, fd }
    const fail = (reason: string) => reject(new Fault(`taking the snapshot failed: ${reason}`))
    worker.once('message', (report: SnapshotCopyReport) => {
      void ('copied' in report ? releaseStoreWorker(worker) : worker.terminate())
      if ('copied' in report) resolve(report.copied)
      else fail(report.failure)
    })
    worker.once('error', (error) => fail(messageOf(error)))
    worker.once('exit', () => fail('the worker exited'))
    worker.postMessage(task, [])
  })
}

async function* archiveOf(
  { meta, sha256 }: SnapshotCopy,
  fd: number,
  onProgress?: SnapshotProgress,
): AsyncGenerator<Buffer> {
  const described = encodeMeta(meta)
  const sums = Buffer.from(`${sha256Of(described)}  meta.json\n${sha256}  state.bin\n`)
  const member = (name: ArchiveMember, bytes: Buffer) => tarMember({ path: name, bytes }, meta.takenAtMs)
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
  yield TAR_END
}

async function readAt(fd: number, at: number, bytes: number): Promise<Buffer> {
  const { bytesRead, buffer } = await readFile(fd, Buffer.alloc(bytes), 0, bytes, at)
  if (bytesRead === 0) throw new Fault('the copy of the entries is truncated')
  return buffer.subarray(0, bytesRead)
}

/** Writes the entries of a received archive to a file. */
class SpoolSink implements EntrySink {
  readonly #fd: number
  readonly #onWritten: (doneBytes: number) => void
  #isStopped = false
  #writing: Promise<unknown> | undefined

  constructor(fd: number, onWritten: (doneBytes: number) => void) {
    this.#fd = fd
    this.#onWritten = onWritten
  }

  async write(piece: Buffer, at: number): Promise<void> {
    for (let done = 0; done < piece.length; ) {
      if (this.#isStopped) throw new Fault('the restore was aborted')
      const writing = writeFile(this.#fd, piece, done, piece.length - done, at + done)
      this.#writing = writing
      done += (await writing).bytesWritten
    }
    this.#onWritten(at + piece.length)
  }

  /** Resolves once no write to the file is pending. */
  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#writing?.catch(() => undefined)
  }
}
