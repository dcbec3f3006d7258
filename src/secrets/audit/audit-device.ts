/**
 * One audit device: its kind, its options, its key and its place in the chain. Lines that are handed over while others are
 * being written wait for them, at most so many bytes: a device that takes nothing must not take the memory of the server.
 */
import { KeyedHash } from '../../kit/keyed-hash.ts'
import { Fault } from '../../kit/errors.ts'
import { CHAIN_START, type ChainHead } from './audit-chain.ts'
import type { LineSink } from './audit-file.ts'
import { UnsureFault } from './audit-socket.ts'
import type { Shown } from './audit-record.ts'

/** Characters that wait for one device. */
const WAITING_LENGTH_MAX = 64 << 20

export interface DeviceSettings {
  readonly isRaw: boolean
  readonly isAccessorHashed: boolean
  readonly isListElided: boolean
}

interface Waiting {
  readonly json: string
  readonly recorded: () => void
  readonly failed: (error: unknown) => void
}

export class AuditDevice {
  /** Where it is enabled, with a slash at its end. */
  readonly path: string
  readonly shown: Shown
  readonly #sink: LineSink
  readonly #key: KeyedHash
  #head: ChainHead
  #waiting: Waiting[] = []
  #waitingLength = 0
  #isWriting = false
  #isClosing = false
  /** Lines that it has recorded. */
  lines = 0
  /** Lines that it did not record. */
  failures = 0

  constructor(path: string, sink: LineSink, key: Buffer, settings: DeviceSettings, head: ChainHead = CHAIN_START) {
    this.path = path
    this.#sink = sink
    this.#key = new KeyedHash(key)
    this.shown = { key: this.#key, ...settings }
    this.#head = head
  }

  /** The last line that it has recorded. */
  get head(): ChainHead {
    return this.#head
  }

  /** Resolves once the line is recorded; rejects where it is not, and then no part of it is. */
  async record(json: string): Promise<void> {
    if (this.#isClosing || this.#waitingLength + json.length > WAITING_LENGTH_MAX) {
      this.failures++
      throw new Fault(`the audit device ${this.path} is ${this.#isClosing ? 'closed' : 'too slow'}`)
    }
    this.#waitingLength += json.length
    await new Promise<void>((recorded, failed) => {
      this.#waiting.push({ json, recorded, failed })
      if (!this.#isWriting) void this.#writeAll()
    })
  }

  /** Takes its file or connection anew before the next line. */
  reopen(): void {
    this.#sink.reopen()
  }

  /** Takes no more lines; those that it has taken are recorded first. */
  close(): void {
    this.#isClosing = true
    this.#key.close()
    if (!this.#isWriting) this.#sink.close()
  }

  async #writeAll(): Promise<void> {
    this.#isWriting = true
    // What else this turn brings goes along.
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      const group = this.#waiting.splice(0, this.#sink.isOneByOne ? 1 : this.#waiting.length)
      for (const { json } of group) this.#waitingLength -= json.length
      await this.#write(group)
    }
    this.#isWriting = false
    if (this.#isClosing) this.#sink.close()
  }

  async #write(group: readonly Waiting[]): Promise<void> {
    try {
      this.#head = await this.#sink.write(
        group.map(({ json }) => json),
        this.#head,
      )
    } catch (error) {
      if (error instanceof UnsureFault) this.#head = error.head
      this.failures += group.length
      for (const { failed } of group) failed(error)
      return
    }
    this.lines += group.length
    for (const { recorded } of group) recorded()
  }
}
