/**
 * A file that appears under its name only when it is whole. What is there already and is not a regular file (a device, a
 * pipe) is written to as it is.
 */
import { closeSync, lstatSync, openSync, writeSync } from 'node:fs'
import { isErrno, messageOf } from '../../platform/errors.ts'
import { FileReplacement } from '../../platform/own-file.ts'
import { CommandError } from '../framework/command-shape.ts'

export class FileSink {
  readonly #file: string
  readonly #target: Pick<FileReplacement, 'write' | 'finish' | 'discard'>

  /** `mode` is that of a new file. Throws CommandError when it cannot be made. */
  constructor(file: string, mode = 0o666) {
    this.#file = file
    const temporary = `${file}.part-${process.pid}`
    this.#target = this.#tried(() =>
      isReplaceable(file) ? new FileReplacement(file, { mode, temporary }) : inPlace(openSync(file, 'w', mode)),
    )
  }

  /** Throws CommandError, as when the disk is full. */
  write(bytes: Buffer): void {
    this.#tried(() => this.#target.write(bytes))
  }

  /** Throws CommandError. */
  finish(): void {
    this.#tried(() => this.#target.finish())
  }

  discard(): void {
    this.#target.discard()
  }

  #tried<T>(act: () => T): T {
    try {
      return act()
    } catch (error) {
      throw new CommandError(`cannot write ${this.#file}: ${messageOf(error)}`, 1, { cause: error })
    }
  }
}

function inPlace(fd: number) {
  return {
    write(bytes: Uint8Array) {
      for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at)
    },
    finish: () => closeSync(fd),
    discard: () => undefined,
  }
}

function isReplaceable(file: string): boolean {
  try {
    return lstatSync(file).isFile()
  } catch (error) {
    return isErrno(error, 'ENOENT')
  }
}
