/**
 * The entries of a snapshot that an HA cluster restores. The active server sends them through the commit stream in chunks, and each member
 * collects them in a file beside its database. The last order then replaces all entries, on every member at the same position of the stream and in
 * one transaction each. A member that lacks a chunk refuses that order, and copies the entries of another member.
 */
import { closeSync, fstatSync, fsyncSync, openSync, rmSync, writeSync, readSync } from 'node:fs'
import type { ReplicaOrder } from './replica-writer.ts'

const MODE = 0o600

export class StagedSnapshot {
  readonly #path: string

  constructor(path: string) {
    this.#path = `${path}.restore`
  }

  /** Appends a chunk and syncs it. A chunk that does not continue the file is dropped; the first one replaces the file. */
  write(at: number, bytes: Uint8Array): void {
    const fd = openSync(this.#path, at === 0 ? 'w' : 'a', MODE)
    try {
      if (fstatSync(fd).size !== at) return
      for (let done = 0; done < bytes.length; ) done += writeSync(fd, bytes, done)
      fsyncSync(fd)
    } finally {
      closeSync(fd)
    }
  }

  /** Calls `use` with a descriptor of the file. Throws the error of open(2) if there is none. */
  read<T>(use: (fd: number) => T): T {
    const fd = openSync(this.#path, 'r')
    try {
      return use(fd)
    } finally {
      closeSync(fd)
    }
  }

  remove(): void {
    rmSync(this.#path, { force: true })
  }
}

/** Part of a snapshot that is sent to the members. */
const STAGED_BYTES = 4 << 20
export const NOTHING_STAGED: ReplicaOrder = { do: 'stage', at: 0, bytes: new Uint8Array() }

/** Sends the entries of a snapshot to the members, which keep them until the restore. */
export async function stageSnapshot(
  fd: number,
  bytes: number,
  replicate: (order: ReplicaOrder) => Promise<unknown>,
): Promise<void> {
  const chunk = Buffer.alloc(Math.min(bytes, STAGED_BYTES))
  for (let at = 0; at === 0 || at < bytes; ) {
    const length = readSync(fd, chunk, 0, Math.min(chunk.length, bytes - at), at)
    await replicate({ do: 'stage', at, bytes: chunk.subarray(0, length) })
    if (length === 0) break
    at += length
  }
}
