/** Where what is secret is written to: a file of its owner alone, which is there only when it is whole, or stdout. */
import { openSink } from '../framework/byte-sink.ts'
import type { CommandIo } from '../framework/command-shape.ts'
import { FileSink } from './file-sink.ts'

export interface ByteTarget {
  /** Throws CommandError, as when the disk is full. */
  write(bytes: Buffer): Promise<void> | void | undefined
  /** True once nobody reads it any more. */
  readonly isGone: boolean
  finish(): Promise<void> | void
  /** A file is not there then; what went to stdout is. */
  discard(): void
}

/** `-` is stdout. Throws CommandError for a file that cannot be made. */
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
