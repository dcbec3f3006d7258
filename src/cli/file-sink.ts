/**
 * A file that appears under its name only when it is whole. What is there already and is no regular file (a device, a
 * pipe) is written to as it is.
 */
import { closeSync, fsyncSync, lstatSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { isErrno, messageOf } from '../kit/errors.ts'
import { CommandError } from './command-shape.ts'

export class FileSink {
  readonly #file: string
  /** Undefined when it is written in place. */
  readonly #temporary: string | undefined
  readonly #descriptor: number

  /** `mode` is that of a new file. Throws CommandError when it cannot be made. */
  constructor(file: string, mode = 0o666) {
    this.#file = file
    this.#temporary = isReplaceable(file) ? `${file}.part-${process.pid}` : undefined
    this.#descriptor = this.#tried(() => openSync(this.#temporary ?? file, this.#temporary ? 'wx' : 'w', mode))
  }

  /** Throws CommandError, as when the disk is full. */
  write(bytes: Buffer): void {
    this.#tried(() => {
      for (let from = 0; from < bytes.length; ) from += writeSync(this.#descriptor, bytes, from)
    })
  }

  /** Throws CommandError. */
  finish(): void {
    this.#tried(() => {
      const temporary = this.#temporary
      if (temporary !== undefined) fsyncSync(this.#descriptor)
      closeSync(this.#descriptor)
      if (temporary !== undefined) renameSync(temporary, this.#file)
    })
  }

  discard(): void {
    if (this.#temporary !== undefined) rmSync(this.#temporary, { force: true })
  }

  #tried<T>(act: () => T): T {
    try {
      return act()
    } catch (error) {
      throw new CommandError(`cannot write ${this.#file}: ${messageOf(error)}`, 1, { cause: error })
    }
  }
}

function isReplaceable(file: string): boolean {
  try {
    return lstatSync(file).isFile()
  } catch (error) {
    return isErrno(error, 'ENOENT')
  }
}
