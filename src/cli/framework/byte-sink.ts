/**
 * Bytes to stdout or stderr at the reader's pace, without blocking the process.
 *
 * A blocking write to a full pipe would leave Ctrl-C unheard, and a write in Node's thread pool would keep the process
 * from exiting. So a pipe is opened once more through `/proc`, which gives a description of our own to make
 * non-blocking: the shell's, which its other processes share, stays as it was. Files and terminals are written to as they
 * are: they take what they get. A terminal is shown what it would obey (`shown.ts`); everything else gets every byte.
 */
import { constants, fstatSync, openSync, writeSync } from 'node:fs'
import type { Socket } from 'node:net'
import { isErrno } from '../../platform/errors.ts'
import { ReaderWatch } from './reader-watch.ts'
import { ShownBytes } from './shown.ts'

/** What may wait in memory for a reader that is behind. */
const QUEUE_BYTES_MAX = 1024 * 1024
const CLOSED_POLL_MS = 500
const BUSY_WAIT_MS = 5

export interface ByteSink {
  /** Takes the bytes, which must not change afterwards. A promise when the reader is behind: wait for it. */
  write(bytes: Buffer): Promise<void> | undefined
  /** Resolves when nobody reads any more; what is written after that is thrown away. */
  readonly gone: Promise<void>
  readonly isGone: boolean
  /** Resolves when everything has been handed over. Ends the watch for the reader. */
  end(): Promise<void>
}

/** A sink for descriptor 1 or 2. `watched` also looks for the reader's end while nothing is written. */
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
      // To write nothing is refused once the other end is closed, and does nothing before that.
      const isClosed = () => isRefused(descriptor)
      return new SocketSink(new Socket({ ...options, fd: descriptor }), watched ? isClosed : undefined)
    }
  } catch {
    // No /proc, or a pipe that another user made: written to as it is.
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
    if (!this.isGone && this.#socket.writableLength > 0) await this.#written()
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

  /** An empty write is done when all before it are. */
  #written(): Promise<void> {
    return new Promise((resolve) => void this.#socket.write('', () => resolve()))
  }
}

class DirectSink implements ByteSink {
  readonly gone: Promise<void>
  isGone = false
  readonly #descriptor: number
  readonly #shown: ShownBytes | undefined
  #leave: () => void = () => undefined

  constructor(descriptor: number) {
    this.#descriptor = descriptor
    this.#shown = process.getBuiltinModule('node:tty').isatty(descriptor) ? new ShownBytes() : undefined
    this.gone = new Promise((resolve) => (this.#leave = resolve))
  }

  write(bytes: Buffer): Promise<void> | undefined {
    return this.#writeFrom(this.#shown?.take(bytes) ?? bytes, 0)
  }

  async end(): Promise<void> {
    if (this.#shown) await this.#writeFrom(this.#shown.rest(), 0)
  }

  #writeFrom(bytes: Buffer, start: number): Promise<void> | undefined {
    let from = start
    while (from < bytes.length && !this.isGone) {
      try {
        from += writeSync(this.#descriptor, bytes, from)
      } catch (error) {
        if (isErrno(error, 'EAGAIN')) return this.#later(bytes, from)
        if (!isErrno(error, 'EPIPE', 'EIO', 'EBADF')) throw error // a full disk is worth an error
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
