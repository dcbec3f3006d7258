/**
 * Positional reads of an open file.
 *
 * Large reads go through the thread pool, where they run beside the write of the chunk before. A small one is read in
 * place as long as that is quick: nearly always the bytes are in memory, where reading takes microseconds and a trip to
 * the thread pool twenty times that. The first read that was slow sends all of them to the pool for a while, so a cold
 * or distant disk stalls everybody else once a second at most, for one read (docs/decisions/005).
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

/** Reads in place and keeps an eye on how long that takes. */
function readInline(fd: number, buffer: Buffer, at: number, length: number, position: number): number {
  const startMs = performance.now()
  const got = readSync(fd, buffer, at, length, position)
  const endMs = performance.now()
  if (endMs - startMs > SLOW_MS) pooledUntilMs = endMs + POOL_FOR_MS
  return got
}

/** Chunks below are too small to keep anybody waiting. */
const TURN_CHUNK_BYTES_MIN = 4096
const line = scheduler.queue()

/**
 * To be called with the bytes that are handed on; what it returns, if anything, is to be awaited. Reads in place and
 * writes that the kernel takes at once never leave the turn by themselves, so a few fast callers would keep timers,
 * heartbeats and new connections waiting for as long as their files last.
 */
export function spendTurn(bytes: number): Promise<void> | undefined {
  return bytes < TURN_CHUNK_BYTES_MIN ? undefined : line.enter()
}

/**
 * A descriptor that closes only when no read of it is under way: a caller may leave while the thread pool still reads,
 * and a number that is closed too early may by then belong to another file.
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
 * valid until the second chunk after it is asked for (plain) or until the next one (framed, where it is encoded first).
 */
export async function* readSpan(
  file: OpenFile,
  lease: BufferLease,
  span: { start: number; end: number; labelBytes?: number },
): AsyncGenerator<Buffer> {
  let position = span.start
  while (position < span.end) {
    const length = Math.min(lease.readBytes(span.labelBytes ?? 0), span.end - position)
    const buffer = lease.readBuffer()
    const got = await file.read(buffer, 0, length, position)
    if (got === 0) return
    const turn = spendTurn(got)
    if (turn) await turn
    yield buffer.subarray(0, got)
    lease.took(got)
    position += got
  }
}
