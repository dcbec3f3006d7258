/**
 * One audit device: its kind, its options, its key and its chain. Lines that are handed over while others are being written
 * wait in a queue of bounded length, so that a device that does not write cannot use up the memory of the server.
 *
 * A break of the chain stays with the device until an operator acknowledges it: `brokenChain` fails readiness.
 */
import { KeyedHash } from '../../platform/keyed-hash.ts'
import { Fault } from '../../platform/errors.ts'
import type { ChainHead } from './audit-chain.ts'
import type { FileFinding, LineSink } from './audit-file.ts'
import type { Shown } from './audit-record.ts'
import type { ChainBreak, DeviceChain } from './device-chain.ts'

/** Characters that wait for one device. */
const WAITING_LENGTH_MAX = 64 << 20

export interface DeviceSettings {
  readonly isRaw: boolean
  readonly isAccessorHashed: boolean
  readonly isListElided: boolean
}

export interface DeviceParts {
  readonly sink: LineSink
  /** For the HMACs of texts in its lines. */
  readonly key: Buffer
  readonly settings: DeviceSettings
  readonly chain: DeviceChain
  /** A break of before the start that no operator has acknowledged. */
  readonly broken?: ChainBreak | undefined
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
  readonly #chain: DeviceChain
  #brokenChain: ChainBreak | undefined
  #waiting: Waiting[] = []
  #waitingLength = 0
  #isWriting = false
  #isClosing = false
  /** Lines that it has recorded. */
  lines = 0
  /** Lines that it did not record. */
  failures = 0
  /** How often its file did not end with the line that the server had written last. */
  breaks = 0
  /** How often its file was truncated to nothing, or removed. */
  lostFiles = 0
  /** Called for each finding of `check`. */
  onFinding: ((finding: FileFinding) => void) | undefined

  constructor(path: string, { broken, chain, key, settings, sink }: DeviceParts) {
    this.path = path
    this.#sink = sink
    this.#key = new KeyedHash(key)
    this.shown = { key: this.#key, ...settings }
    this.#chain = chain
    this.#brokenChain = broken
  }

  /** The last line that it has recorded. */
  get head(): ChainHead {
    return this.#chain.head
  }

  get chainId(): string {
    return this.#chain.id
  }

  /** No line of the chain was written yet. */
  get isNew(): boolean {
    return this.#chain.isNew
  }

  /** The newest break of its chain that no operator has acknowledged. */
  get brokenChain(): ChainBreak | undefined {
    return this.#brokenChain
  }

  /** A break that no line of the file states yet. */
  get hasPendingBreak(): boolean {
    return this.#chain.pendingBreak !== undefined
  }

  acknowledge(): void {
    this.#brokenChain = undefined
  }

  /** Compares its file with its chain. Throws a Fault for a file that cannot be written to. */
  check(): void {
    if (!this.#isClosing) this.#look(false)
  }

  /** Opens its file again, making it where it is missing, or connects again before the next line. Throws as `check`. */
  reopen(): void {
    this.#sink.reopen()
    if (!this.#isClosing) this.#look(true)
  }

  /** Resolves with the last line that survives a power cut. */
  async sync(): Promise<ChainHead> {
    const { head } = this.#chain
    await this.#sink.sync?.()
    return head
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

  /** Creates or restores the space that is kept for a full disk. Never rejects. */
  async keepReserve(): Promise<void> {
    if (!this.#isClosing) await this.#sink.keepReserve?.()
  }

  /** Removes the reserve; the device is closed next. */
  removeReserve(): void {
    this.#sink.removeReserve?.()
  }

  /** Takes no more lines; those that it has taken are recorded first. */
  close(): void {
    this.#isClosing = true
    this.#key.close()
    if (!this.#isWriting) this.#end()
  }

  #end(): void {
    this.#sink.close()
    this.#chain.close()
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
    if (this.#isClosing) this.#end()
  }

  async #write(group: readonly Waiting[]): Promise<void> {
    try {
      this.#look(true)
      const { pendingBreak } = this.#chain
      const lines = group.map(({ json }) => json)
      await this.#sink.write(pendingBreak ? [breakLine(this.path, pendingBreak), ...lines] : lines, this.#chain)
    } catch (error) {
      this.failures += group.length
      for (const { failed } of group) failed(error)
      return
    }
    this.lines += group.length
    for (const { recorded } of group) recorded()
  }

  #look(isToBeWritten: boolean): void {
    const finding = this.#sink.check?.(this.#chain, isToBeWritten)
    if (!finding) return
    if (finding.kind === 'break') {
      this.breaks++
      this.#brokenChain = finding.broken
    } else this.lostFiles++
    this.onFinding?.(finding)
  }
}

/** The line that states a break, as JSON without the chain. */
function breakLine(path: string, { expected, found }: ChainBreak): string {
  const chainBreak = { expected, found: found ?? null }
  return JSON.stringify({ time: new Date().toISOString(), type: 'device', path, chain_break: chainBreak })
}
