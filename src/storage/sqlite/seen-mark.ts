/**
 * How far the database has come, in a small file beside it that is written after each transaction, before it is answered
 * (`seen-position.ts` reads it at the start). It is written in place and not synced, which costs two microseconds: the kernel keeps it
 * when the process is killed. After a power cut it may tell less than the database has, and never more, as each
 * transaction is synced before.
 *
 * It also holds the *generation* of the operation token: a random name that changes whenever the token is replaced or removed. The
 * token's entry is `local/`, so neither the log nor the entry set tells an old one that was put back; the generation does. A
 * change of the generation is synced. `hasRoleCode` is in the file once the state of replication has a code: a state without one is
 * then refused (`dr/state/role-code.ts`).
 */
import { closeSync, constants, fstatSync, fsyncSync, lstatSync, rmSync, writeSync } from 'node:fs'
import { openIfThere, replaceFile, textIfThere } from '../../platform/own-file.ts'

export interface Seen {
  readonly cluster: string
  readonly epoch: number
  readonly sequence: number
}

interface Kept {
  readonly generation: string | undefined
  readonly hasRoleCode: boolean
}

/** Length of the text, always the same: writing in place leaves nothing of the text before. */
const TEXT_BYTES = 192

/** The content of the file; undefined where there is none, or where it is malformed. */
export function readSeen(file: string): (Seen & Kept) | undefined {
  try {
    const { cluster, epoch, generation, hasRoleCode, sequence } = JSON.parse(textIfThere(file) ?? '') as Record<
      string,
      unknown
    >
    const isSeen = typeof cluster === 'string' && typeof epoch === 'number' && typeof sequence === 'number'
    if (!isSeen) return undefined
    const kept = {
      generation: typeof generation === 'string' ? generation : undefined,
      hasRoleCode: hasRoleCode === true,
    }
    return { cluster, epoch, sequence, ...kept }
  } catch {
    return undefined
  }
}

export class SeenMark {
  readonly #file: string
  #fd: number | undefined
  #written: Seen | undefined
  #generation: string | undefined
  #hasRoleCode: boolean
  /** The file could not be made: not tried again before the next look. */
  #isOff = false

  constructor(path: string) {
    this.#file = `${path}.seen`
    const seen = readSeen(this.#file)
    this.#generation = seen?.generation
    this.#hasRoleCode = seen?.hasRoleCode ?? false
  }

  /**
   * Another operation token counts from now on, or, for undefined, none. It is on the disk then. Throws where the
   * file cannot be written, and for a database that is empty.
   */
  setGeneration(generation: string | undefined, seen: Seen): void {
    this.#generation = generation
    this.#written = undefined
    this.look()
    if (seen.sequence === 0) {
      if (generation === undefined) return
      throw new Error('the database is empty: no operation token can be kept')
    }
    this.#put(seen)
    if (this.#fd !== undefined) fsyncSync(this.#fd)
  }

  /** The state of replication has a code from now on. Does nothing for a database that is empty. Throws where the file cannot be written. */
  setRoleCode(seen: Seen): void {
    if (seen.sequence === 0) return
    this.#hasRoleCode = true
    this.#written = undefined
    this.look()
    this.#put(seen)
    if (this.#fd !== undefined) fsyncSync(this.#fd)
  }

  /** What cannot be written is not worth an error. */
  write(seen: Seen): void {
    // An empty database says nothing, and what was seen before must go on telling that it is empty.
    if (seen.sequence === 0 || this.#isOff || this.#says(seen)) return
    try {
      this.#put(seen)
    } catch {
      // A full disk, or a directory in its place.
      this.close()
      this.#isOff = true
    }
  }

  #put(seen: Seen): void {
    const generation = this.#generation
    const kept = { ...(generation !== undefined && { generation }), ...(this.#hasRoleCode && { hasRoleCode: true }) }
    const text = `${JSON.stringify({ ...seen, ...kept }).padEnd(TEXT_BYTES)}\n`
    if (this.#fd === undefined) this.#fd = this.#make(text)
    else writeSync(this.#fd, text, 0)
    this.#written = seen
  }

  /** Whether the file is still the one that is written to; the next one is made anew otherwise. */
  look(): void {
    this.#isOff = false
    if (this.#fd === undefined) return
    try {
      const [named, open] = [lstatSync(this.#file), fstatSync(this.#fd)]
      if (named.ino === open.ino && named.dev === open.dev) return
    } catch {
      // It was removed.
    }
    this.close()
  }

  /** Everything is removed, and that is meant: the next start must not miss it. */
  forget(): void {
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

  #says({ cluster, epoch, sequence }: Seen): boolean {
    const known = this.#written
    return known?.sequence === sequence && known.epoch === epoch && known.cluster === cluster
  }

  /**
   * In place of the old one when it is whole. Another process may have put something else there by the time it is opened: a
   * pipe is an error and must not hold up the thread. A file that is gone again is made anew by the next write.
   */
  #make(text: string): number | undefined {
    replaceFile(this.#file, text, { durable: false })
    return openIfThere(this.#file, constants.O_WRONLY | constants.O_NOFOLLOW)
  }
}
