/**
 * Positional reads of an open file.
 *
 * Large reads go through the thread pool, in parallel with the write of the previous chunk. Small reads are synchronous
 * while they are fast: nearly always the bytes are in the page cache, where a read takes microseconds and the thread pool
 * twenty times that. A slow read sends all reads to the pool for `POOL_FOR_MS`, so a cold or remote disk blocks the event
 * loop for at most one read a second (docs/decisions/005).
 */
import { scheduler } from '../../platform/scheduler.ts'
import { closeSync, read, readSync } from 'node:fs'
import type { BufferLease } from './buffers.ts'

/** Reads up to `length` bytes at `position`; resolves with the number read, 0 at the end of the file. */
export function readAt(fd: number, buffer: Buffer, at: number, length: number, position: number): Promise<number> {
  return new Promise((resolve, reject) => {
    read(fd, buffer, at, length, position, (error, bytesRead) => {
      if (error) reject(error)
      else resolve(bytesRead)
    })
  })
}

const INLINE_BYTES_MAX = 66_048
const SLOW_MS = 2
const POOL_FOR_MS = 1000
let pooledUntilMs = 0

/** Synchronous read. A slow one switches to the thread pool. */
function readInline(fd: number, buffer: Buffer, at: number, length: number, position: number): number {
  const startMs = performance.now()
  const got = readSync(fd, buffer, at, length, position)
  const endMs = performance.now()
  if (endMs - startMs > SLOW_MS) pooledUntilMs = endMs + POOL_FOR_MS
  return got
}

/** Smaller chunks do not yield. */
const TURN_CHUNK_BYTES_MIN = 4096
const line = scheduler.queue()

/**
 * Yields the event loop, if due, after a chunk of `bytes`; the caller awaits the result. Synchronous reads, and writes that
 * the kernel accepts at once, never leave the current turn, so without this a few fast clients would block timers,
 * heartbeats and new connections until the end of their files.
 */
export function spendTurn(bytes: number): Promise<void> | undefined {
  return bytes < TURN_CHUNK_BYTES_MIN ? undefined : line.enter()
}

/**
 * A descriptor that is closed only when no read of it is in progress: a client may disconnect while the thread pool reads,
 * and the number of a descriptor that was closed too early may already belong to another file.
 */
export class OpenFile {
  readonly fd: number
  #reads = 0
  #closing = false

  constructor(fd: number) {
    this.fd = fd
  }

  async read(buffer: Buffer, at: number, length: number, position: number): Promise<number> {
    if (this.#closing) throw new Error('read of a closed file')
    if (length <= INLINE_BYTES_MAX && performance.now() >= pooledUntilMs) {
      return readInline(this.fd, buffer, at, length, position)
    }
    this.#reads++
    try {
      return await readAt(this.fd, buffer, at, length, position)
    } finally {
      this.#reads--
      if (this.#closing && this.#reads === 0) closeSync(this.fd)
    }
  }

  close(): void {
    if (this.#closing) return
    this.#closing = true
    if (this.#reads === 0) closeSync(this.fd)
  }
}

/**
 * The bytes `[start, end)` of a file in order, in the lease's buffers; ends early at the end of the file. A chunk stays
 * valid until the second chunk after it is requested (plain) or until the next one (framed, where it is encoded first).
 */
export async function* readSpan(
  file: OpenFile,
  lease: BufferLease,
  range: { start: number; end: number; labelBytes?: number },
): AsyncGenerator<Buffer> {
  let position = range.start
  while (position < range.end) {
    const length = Math.min(lease.readBytes(range.labelBytes ?? 0), range.end - position)
    const buffer = lease.readBuffer()
    const got = await file.read(buffer, 0, length, position)
    if (got === 0) return
    const turn = spendTurn(got)
    if (turn) await turn
    yield buffer.subarray(0, got)
    lease.advance(got)
    position += got
  }
}
