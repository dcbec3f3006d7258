/**
 * The file `.seen` beside the database has the position of its newest commit. It is written after each transaction and before the
 * result is delivered, and read at the start (`rollback-check.ts`). It is written in place without a sync, which takes 2 µs: the
 * kernel keeps it when the process is killed. After a power failure it may be behind the database and never ahead of it, as each
 * transaction is synced first.
 *
 * It also has the *generation* of the DR operation token: a random name that changes when the token is replaced or removed. The
 * token is a local entry, so neither the log nor the entry set detects a rollback of it; the generation does. A change of the
 * generation is synced. `hasRoleCode` is set once the state of replication has a code: a state without one is then refused
 * (`dr/state/role-code.ts`).
 */
import { closeSync, constants, fstatSync, fsyncSync, lstatSync, rmSync, writeSync } from 'node:fs'
import { openIfExists, replaceFile, readTextIfExists } from '../../platform/program-file.ts'

export interface NewestPosition {
  readonly cluster: string
  readonly epoch: number
  readonly sequence: number
}

interface SeenFileFlags {
  readonly generation: string | undefined
  readonly hasRoleCode: boolean
}

/** Constant length, so that a write in place replaces the whole content. */
const TEXT_BYTES = 192

/** Undefined for a missing or malformed file. */
export function readSeenFile(file: string): (NewestPosition & SeenFileFlags) | undefined {
  try {
    const { cluster, epoch, generation, hasRoleCode, sequence } = JSON.parse(readTextIfExists(file) ?? '') as Record<
      string,
      unknown
    >
    const isSeen = typeof cluster === 'string' && typeof epoch === 'number' && typeof sequence === 'number'
    if (!isSeen) return undefined
    const flags = {
      generation: typeof generation === 'string' ? generation : undefined,
      hasRoleCode: hasRoleCode === true,
    }
    return { cluster, epoch, sequence, ...flags }
  } catch {
    return undefined
  }
}

export class SeenFile {
  readonly #file: string
  #fd: number | undefined
  #written: NewestPosition | undefined
  #generation: string | undefined
  #hasRoleCode: boolean
  /** Creating the file failed; `reopenIfReplaced` allows the next attempt. */
  #isOff = false

  constructor(path: string) {
    this.#file = `${path}.seen`
    const seen = readSeenFile(this.#file)
    this.#generation = seen?.generation
    this.#hasRoleCode = seen?.hasRoleCode ?? false
  }

  /**
   * Sets the generation of the operation token, undefined for none, and syncs the file. Throws when the file cannot be written, and for
   * an empty database.
   */
  setGeneration(generation: string | undefined, seen: NewestPosition): void {
    this.#generation = generation
    this.#written = undefined
    this.reopenIfReplaced()
    if (seen.sequence === 0) {
      if (generation === undefined) return
      throw new Error('cannot store the generation of an operation token: the database is empty')
    }
    this.#put(seen)
    if (this.#fd !== undefined) fsyncSync(this.#fd)
  }

  /** Records that the state of replication has a code. No effect on an empty database. Throws when the file cannot be written. */
  setRoleCode(seen: NewestPosition): void {
    if (seen.sequence === 0) return
    this.#hasRoleCode = true
    this.#written = undefined
    this.reopenIfReplaced()
    this.#put(seen)
    if (this.#fd !== undefined) fsyncSync(this.#fd)
  }

  /** Best effort. */
  write(seen: NewestPosition): void {
    // The position of an earlier database must stay in the file while this one is empty: it shows that the database was lost.
    if (seen.sequence === 0 || this.#isOff || this.#isWritten(seen)) return
    try {
      this.#put(seen)
    } catch {
      // A full disk, or a directory with this name.
      this.close()
      this.#isOff = true
    }
  }

  #put(seen: NewestPosition): void {
    const generation = this.#generation
    const flags = { ...(generation !== undefined && { generation }), ...(this.#hasRoleCode && { hasRoleCode: true }) }
    const text = `${JSON.stringify({ ...seen, ...flags }).padEnd(TEXT_BYTES)}\n`
    if (this.#fd === undefined) this.#fd = this.#create(text)
    else writeSync(this.#fd, text, 0)
    this.#written = seen
  }

  /** Closes a descriptor whose file was replaced or removed, so that the next write creates the file again. */
  reopenIfReplaced(): void {
    this.#isOff = false
    if (this.#fd === undefined) return
    try {
      const [named, open] = [lstatSync(this.#file), fstatSync(this.#fd)]
      if (named.ino === open.ino && named.dev === open.dev) return
    } catch {
      // Removed.
    }
    this.close()
  }

  /** Removes the file after the entries were removed on purpose, so that the next start does not report a loss. */
  remove(): void {
    this.close()
    this.#generation = undefined
    this.#hasRoleCode = false
    rmSync(this.#file, { force: true })
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd)
    this.#fd = undefined
    this.#written = undefined
  }

  #isWritten({ cluster, epoch, sequence }: NewestPosition): boolean {
    const written = this.#written
    return written?.sequence === sequence && written.epoch === epoch && written.cluster === cluster
  }

  /**
   * Replaces the file by rename. Another process may replace it before it is opened: a FIFO is an error and must not block the
   * thread. The next write creates a file that is missing again.
   */
  #create(text: string): number | undefined {
    replaceFile(this.#file, text, { durable: false })
    return openIfExists(this.#file, constants.O_WRONLY | constants.O_NOFOLLOW)
  }
}
