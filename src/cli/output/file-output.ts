/**
 * Output files: written under a temporary name and renamed when they are complete. An existing file that is not a regular file (a
 * device, a pipe) is written in place.
 */
import { closeSync, lstatSync, openSync, writeSync } from 'node:fs'
import { isErrno, messageOf } from '../../platform/errors.ts'
import { FileReplacement } from '../../platform/program-file.ts'
import { openSink } from '../framework/byte-sink.ts'
import { CommandError, type CommandIo } from '../framework/define-command.ts'

export class FileSink {
  readonly #file: string
  readonly #target: Pick<FileReplacement, 'write' | 'finish' | 'discard'>

  /** `mode` of a new file. Throws CommandError if it cannot be created. */
  constructor(file: string, mode = 0o666) {
    this.#file = file
    const temporary = `${file}.part-${process.pid}`
    this.#target = this.#try(() =>
      isReplaceable(file) ? new FileReplacement(file, { mode, temporary }) : inPlace(openSync(file, 'w', mode)),
    )
  }

  /** Throws CommandError, for example if the disk is full. */
  write(bytes: Buffer): void {
    this.#try(() => this.#target.write(bytes))
  }

  /** Throws CommandError. */
  finish(): void {
    this.#try(() => this.#target.finish())
  }

  discard(): void {
    this.#target.discard()
  }

  #try<T>(act: () => T): T {
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

export interface ByteTarget {
  /** Throws CommandError, for example if the disk is full. */
  write(bytes: Buffer): Promise<void> | void | undefined
  /** True when the reader has exited. */
  readonly isGone: boolean
  finish(): Promise<void> | void
  /** Removes an incomplete file; has no effect on stdout. */
  discard(): void
}

/** Opens a file with mode 0600 for secrets, or stdout for `-`. Throws CommandError. */
export function targetAt(file: string, io: CommandIo): ByteTarget {
  if (file !== '-') return new SecretFile(file)
  const sink = (io.openSink ?? openSink)(1, false)
  return {
    write: (bytes) => sink.write(bytes),
    get isGone() {
      return sink.isGone
    },
    finish: () => sink.end(),
    discard: () => undefined,
  }
}

class SecretFile extends FileSink implements ByteTarget {
  readonly isGone = false

  constructor(file: string) {
    super(file, 0o600)
  }
}
