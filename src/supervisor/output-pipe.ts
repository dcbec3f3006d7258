/**
 * Pipes for the output of a command.
 *
 * Node would give the command a socket, and programs that open `/dev/stdout` or `/dev/stderr` (shell scripts, web servers) fail with a
 * socket. So these are pipes: two FIFOs in a directory that only this user can enter, opened and unlinked before the command starts.
 * Reading them takes half the CPU of sockets.
 */
import { spawnSync } from 'node:child_process'
import { closeSync, constants, mkdtempSync, openSync, rmSync } from 'node:fs'
import { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { messageOf } from '../platform/errors.ts'
import { SupervisorError } from './supervisor-error.ts'

/** Capacity of a pipe: one read empties it. */
const PIPE_BYTES = 64 * 1024

class OutputPipe {
  readonly #socket: Socket
  #writeEnd: number | undefined
  /** Resolves when all write ends are closed and all bytes were read, or after `stop`. */
  readonly ended: Promise<void>

  /** `onBytes` must not throw; the buffer is reused when it returns. */
  constructor(path: string, onBytes: (bytes: Uint8Array) => void) {
    const readEnd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
    this.#writeEnd = openSync(path, constants.O_WRONLY)
    const buffer = new Uint8Array(PIPE_BYTES)
    const callback = (count: number) => {
      onBytes(buffer.subarray(0, count))
      return true
    }
    this.#socket = new Socket({ fd: readEnd, readable: true, writable: false, onread: { buffer, callback } })
    this.ended = new Promise((resolve) => {
      this.#socket.on('close', () => resolve())
      this.#socket.on('error', () => undefined) // 'close' follows
    })
  }

  /** The end for the command. */
  get writeEnd(): number {
    if (this.#writeEnd === undefined) throw new Error('the write end is closed')
    return this.#writeEnd
  }

  /** Closes the write end of this process, so that the pipe ends with the command. */
  closeWriteEnd(): void {
    if (this.#writeEnd !== undefined) closeSync(this.#writeEnd)
    this.#writeEnd = undefined
  }

  /** Stops reading, even if another process holds the write end. */
  stop(): void {
    this.closeWriteEnd()
    this.#socket.destroy()
  }
}

/**
 * One pipe per consumer. The FIFOs are created in `directory`, or in the temporary directory if `directory` does not support FIFOs.
 * Throws SupervisorError.
 */
export function openPipes(directory: string, consumers: readonly ((bytes: Uint8Array) => void)[]): OutputPipe[] {
  let fault = ''
  for (const parent of [directory, tmpdir()]) {
    try {
      return openPipesIn(parent, consumers)
    } catch (error) {
      fault = messageOf(error)
    }
  }
  throw new SupervisorError(`cannot create pipes for the output of the command: ${fault}`)
}

function openPipesIn(parent: string, consumers: readonly ((bytes: Uint8Array) => void)[]): OutputPipe[] {
  const directory = mkdtempSync(join(parent, '.pipes-')) // mode 0700
  try {
    const paths = consumers.map((_, index) => join(directory, String(index)))
    const made = spawnSync('mkfifo', ['-m', '600', ...paths], { stdio: ['ignore', 'ignore', 'pipe'], encoding: 'utf8' })
    if (made.error) throw made.error
    if (made.status !== 0) throw new Error(made.stderr.trim())
    return paths.map((path, index) => new OutputPipe(path, consumers[index] ?? (() => undefined)))
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}
