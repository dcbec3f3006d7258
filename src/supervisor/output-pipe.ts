/**
 * Pipes that carry a command's output to us.
 *
 * Node would give the command a socket, and a program that opens `/dev/stdout` or `/dev/stderr` (shell scripts and web
 * servers do) fails on a socket. So these are real pipes: two FIFOs in a directory that only we may enter, opened and
 * unlinked before the command starts. They are also half as expensive to read.
 */
import { spawnSync } from 'node:child_process'
import { closeSync, constants, mkdtempSync, openSync, rmSync } from 'node:fs'
import { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { messageOf } from '../platform/errors.ts'
import { CommandError } from '../cli/framework/command-shape.ts'

/** What a pipe holds: one read takes all of it. */
const PIPE_BYTES = 64 * 1024

export class OutputPipe {
  readonly #socket: Socket
  #writeEnd: number | undefined
  /** Resolves once nobody can write to the pipe any more and all of it was read, or once `stop` was called. */
  readonly ended: Promise<void>

  /** `onBytes` must not throw; the bytes are the pipe's again when it returns. */
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
      this.#socket.on('error', () => undefined) // a pipe's read end has none to tell of; 'close' follows in any case
    })
  }

  /** The end that the command gets. */
  get writeEnd(): number {
    if (this.#writeEnd === undefined) throw new Error('the write end is already given away')
    return this.#writeEnd
  }

  /** Lets go of our own hold on the write end, without which the pipe would never end. */
  closeWriteEnd(): void {
    if (this.#writeEnd !== undefined) closeSync(this.#writeEnd)
    this.#writeEnd = undefined
  }

  /** Stops reading, whoever may still hold the other end. */
  stop(): void {
    this.closeWriteEnd()
    this.#socket.destroy()
  }
}

/**
 * One pipe for each consumer. `directory` is where their names exist for a moment; where it cannot hold FIFOs, a
 * temporary directory serves. Throws CommandError.
 */
export function openPipes(directory: string, consumers: readonly ((bytes: Uint8Array) => void)[]): OutputPipe[] {
  let fault = ''
  for (const place of [directory, tmpdir()]) {
    try {
      return openPipesIn(place, consumers)
    } catch (error) {
      fault = messageOf(error)
    }
  }
  throw new CommandError(`cannot make the pipes for the command's output: ${fault}`)
}

function openPipesIn(place: string, consumers: readonly ((bytes: Uint8Array) => void)[]): OutputPipe[] {
  const directory = mkdtempSync(join(place, '.pipes-')) // mode 0700
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
