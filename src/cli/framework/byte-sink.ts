/**
 * Writes bytes to stdout or stderr with back-pressure, without blocking the process.
 *
 * A blocking write to a full pipe would delay Ctrl-C, and a pending write in Node's thread pool would delay the exit. So a pipe is
 * opened again through `/proc`: the new open file description is non-blocking, while that of the shell, which other processes share,
 * does not change. Files and terminals are written synchronously. For a terminal, control characters are escaped
 * (`terminal-escapes.ts`).
 */
import { constants, fstatSync, openSync, writeSync } from 'node:fs'
import type { Socket } from 'node:net'
import { isErrno } from '../../platform/errors.ts'
import { ReaderWatch } from './reader-watch.ts'
import { TerminalEscaper } from './terminal-escapes.ts'

/** Queue for a slow reader. */
const QUEUE_BYTES_MAX = 1024 * 1024
const CLOSED_POLL_MS = 500
const BUSY_WAIT_MS = 5

export interface ByteSink {
  /** Queues the bytes, which must not change afterwards. A promise is returned when the queue is full: await it. */
  write(bytes: Buffer): Promise<void> | undefined
  /** Resolves when the reader has exited; later writes are discarded. */
  readonly gone: Promise<void>
  readonly isGone: boolean
  /** Resolves when all bytes are written. Ends the watch of the reader. */
  end(): Promise<void>
}

/** A sink for descriptor 1 or 2. `watched`: detects the end of the reader also while nothing is written. */
export function openSink(descriptor: 1 | 2, watched: boolean): ByteSink {
  const { Socket } = process.getBuiltinModule('node:net')
  const options = { readable: false, writable: true, writableHighWaterMark: QUEUE_BYTES_MAX }
  try {
    const kind = fstatSync(descriptor)
    if (kind.isFIFO()) {
      const watch = watched ? new ReaderWatch(descriptor) : undefined
      const own = openSync(`/proc/self/fd/${descriptor}`, constants.O_WRONLY | constants.O_NONBLOCK)
      return new SocketSink(new Socket({ ...options, fd: own }), watch && (() => watch.isGone()))
    }
    if (kind.isSocket()) {
      // An empty write fails once the other end is closed, and has no effect before.
      const isClosed = () => isRefused(descriptor)
      return new SocketSink(new Socket({ ...options, fd: descriptor }), watched ? isClosed : undefined)
    }
  } catch {
    // No /proc, or a pipe of another user: written synchronously.
  }
  return new DirectSink(descriptor)
}

function isRefused(descriptor: number): boolean {
  try {
    writeSync(descriptor, Buffer.alloc(0))
    return false
  } catch (error) {
    return isErrno(error, 'EPIPE', 'ECONNRESET')
  }
}

class SocketSink implements ByteSink {
  readonly gone: Promise<void>
  isGone = false
  readonly #socket: Socket
  #poll: NodeJS.Timeout | undefined

  constructor(socket: Socket, isClosed: (() => boolean) | undefined) {
    this.#socket = socket
    this.gone = new Promise((resolve) => {
      const leave = () => {
        this.isGone = true
        clearInterval(this.#poll)
        resolve()
      }
      socket.on('error', leave)
      socket.on('close', leave)
      if (isClosed) this.#poll = setInterval(() => void (isClosed() && socket.destroy()), CLOSED_POLL_MS).unref()
    })
  }

  write(bytes: Buffer): Promise<void> | undefined {
    if (this.isGone || this.#socket.write(bytes)) return undefined
    return this.#drained()
  }

  async end(): Promise<void> {
    clearInterval(this.#poll)
    if (!this.isGone && this.#socket.writableLength > 0) await this.#flushed()
  }

  #drained(): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        this.#socket.off('drain', done).off('close', done)
        resolve()
      }
      this.#socket.on('drain', done).on('close', done)
    })
  }

  /** An empty write completes after all earlier writes. */
  #flushed(): Promise<void> {
    return new Promise((resolve) => void this.#socket.write('', () => resolve()))
  }
}

class DirectSink implements ByteSink {
  readonly gone: Promise<void>
  isGone = false
  readonly #descriptor: number
  readonly #escaper: TerminalEscaper | undefined
  #leave: () => void = () => undefined

  constructor(descriptor: number) {
    this.#descriptor = descriptor
    this.#escaper = process.getBuiltinModule('node:tty').isatty(descriptor) ? new TerminalEscaper() : undefined
    this.gone = new Promise((resolve) => (this.#leave = resolve))
  }

  write(bytes: Buffer): Promise<void> | undefined {
    return this.#writeFrom(this.#escaper?.push(bytes) ?? bytes, 0)
  }

  async end(): Promise<void> {
    if (this.#escaper) await this.#writeFrom(this.#escaper.flush(), 0)
  }

  #writeFrom(bytes: Buffer, start: number): Promise<void> | undefined {
    let from = start
    while (from < bytes.length && !this.isGone) {
      try {
        from += writeSync(this.#descriptor, bytes, from)
      } catch (error) {
        if (isErrno(error, 'EAGAIN')) return this.#later(bytes, from)
        if (!isErrno(error, 'EPIPE', 'EIO', 'EBADF')) throw error // for example a full disk
        this.isGone = true
        this.#leave()
      }
    }
    return undefined
  }

  async #later(bytes: Buffer, from: number): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, BUSY_WAIT_MS))
    await this.#writeFrom(bytes, from)
  }
}
