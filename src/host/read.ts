/**
 * Positional reads of an open file. Content may have to come from a slow disk, so bulk reads go through the thread
 * pool; only the live end of a log, which was just written and is in memory, is read in place (`followed-file.ts`).
 */
import { closeSync, read } from 'node:fs'
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
    yield buffer.subarray(0, got)
    lease.took(got)
    position += got
  }
}
