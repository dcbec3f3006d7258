/**
 * An audit device with its sink, its HMAC key and its chain. Lines that arrive during a write wait in a queue of bounded length,
 * so that a slow device cannot exhaust the memory of the server.
 *
 * A break of the chain (`brokenChain`) fails readiness until an operator acknowledges it.
 */
import { KeyedHash } from '../../platform/keyed-hash.ts'
import type { ChainHead } from './audit-chain.ts'
import type { FileFinding, LineSink } from './audit-file.ts'
import type { LineFormat } from './audit-record.ts'
import type { ChainBreak, DeviceChain } from './device-chain.ts'
import { DeviceFault } from './device-fault.ts'

/** Characters in the queue of one device */
const QUEUED_LENGTH_MAX = 64 << 20

export interface DeviceSettings {
  readonly isRaw: boolean
  readonly isAccessorHashed: boolean
  readonly isListElided: boolean
}

export interface DeviceParts {
  readonly sink: LineSink
  /** The key of HMACs in lines. */
  readonly key: Buffer
  readonly settings: DeviceSettings
  readonly chain: DeviceChain
  /** An unacknowledged break from before the start. */
  readonly broken?: ChainBreak | undefined
}

interface PendingLine {
  readonly json: string
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

export class AuditDevice {
  /** With a trailing slash. */
  readonly path: string
  readonly format: LineFormat
  readonly #sink: LineSink
  readonly #key: KeyedHash
  readonly #chain: DeviceChain
  #brokenChain: ChainBreak | undefined
  #queue: PendingLine[] = []
  #queuedLength = 0
  #isWriting = false
  #isClosing = false
  readonly #closed = Promise.withResolvers<void>()
  /** Recorded lines */
  lines = 0
  /** Failed lines */
  failures = 0
  /** Breaks of the chain */
  breaks = 0
  /** Files that were emptied or removed */
  lostFiles = 0
  /** Called for each finding of `check`. */
  onFinding: ((finding: FileFinding) => void) | undefined

  constructor(path: string, { broken, chain, key, settings, sink }: DeviceParts) {
    this.path = path
    this.#sink = sink
    this.#key = new KeyedHash(key)
    this.format = { key: this.#key, ...settings }
    this.#chain = chain
    this.#brokenChain = broken
  }

  /** The last recorded line. */
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

  /** The newest unacknowledged break of the chain. */
  get brokenChain(): ChainBreak | undefined {
    return this.#brokenChain
  }

  /** A break that no line has recorded yet. */
  get hasPendingBreak(): boolean {
    return this.#chain.pendingBreak !== undefined
  }

  acknowledge(): void {
    this.#brokenChain = undefined
  }

  /** The disk of its file is full, and lines use the reserve or fail. */
  get isDiskFull(): boolean {
    return this.#sink.isDiskFull ?? false
  }

  /** Added to the period without a failure after which the device has recovered. */
  get distrustMs(): number {
    return this.#sink.distrustMs ?? 0
  }

  /** Compares the file with the chain. Throws a Fault if the file cannot be used. */
  check(): void {
    if (!this.#isClosing) this.#checkSink(false)
  }

  /** Reopens the file, which is created if it is missing, or reconnects before the next line. Throws as `check`. */
  reopen(): void {
    this.#sink.reopen()
    if (!this.#isClosing) this.#checkSink(true)
  }

  /** Resolves with the last line that is durable after a power failure. */
  async sync(): Promise<ChainHead> {
    const { head } = this.#chain
    await this.#sink.sync?.()
    return head
  }

  /** Resolves when the line is recorded. Rejects if no part of it is. */
  async record(json: string): Promise<void> {
    if (this.#isClosing || this.#queuedLength + json.length > QUEUED_LENGTH_MAX) {
      this.failures++
      throw new DeviceFault(`the audit device ${this.path}`, this.#isClosing ? 'is closed' : 'is too slow')
    }
    this.#queuedLength += json.length
    await new Promise<void>((resolve, reject) => {
      this.#queue.push({ json, resolve, reject })
      if (!this.#isWriting) void this.#writeAll()
    })
  }

  /** Creates or refills the reserve for a full disk. Never rejects. */
  async keepReserve(): Promise<void> {
    if (!this.#isClosing) await this.#sink.keepReserve?.()
  }

  /** Removes the reserve before the device is closed. */
  removeReserve(): void {
    this.#sink.removeReserve?.()
  }

  /** Refuses further lines and closes after the queued ones are recorded. */
  close(): void {
    this.#isClosing = true
    this.#key.close()
    if (!this.#isWriting) this.#end()
  }

  #end(): void {
    this.#sink.close()
    this.#chain.close()
    this.#closed.resolve()
  }

  /** Resolves after `close`, when the queued lines are recorded: another device may then continue the chain. */
  get closed(): Promise<void> {
    return this.#closed.promise
  }

  async #writeAll(): Promise<void> {
    this.#isWriting = true
    // Lines of the same tick are written together.
    await Promise.resolve()
    while (this.#queue.length > 0) {
      const group = this.#queue.splice(0, this.#sink.isOneByOne ? 1 : this.#queue.length)
      for (const { json } of group) this.#queuedLength -= json.length
      await this.#write(group)
    }
    this.#isWriting = false
    if (this.#isClosing) this.#end()
  }

  async #write(group: readonly PendingLine[]): Promise<void> {
    try {
      this.#checkSink(true)
      const { pendingBreak } = this.#chain
      const lines = group.map(({ json }) => json)
      await this.#sink.write(pendingBreak ? [breakLine(this.path, pendingBreak), ...lines] : lines, this.#chain)
    } catch (error) {
      this.failures += group.length
      for (const { reject } of group) reject(error)
      return
    }
    this.lines += group.length
    for (const { resolve } of group) resolve()
  }

  #checkSink(isWritePending: boolean): void {
    const finding = this.#sink.check?.(this.#chain, isWritePending)
    if (!finding) return
    if (finding.kind === 'break') {
      this.breaks++
      this.#brokenChain = finding.broken
    } else this.lostFiles++
    this.onFinding?.(finding)
  }
}

/** The line that records a break, as JSON without the chain. */
function breakLine(path: string, { expected, found }: ChainBreak): string {
  const chainBreak = { expected, found: found ?? null }
  return JSON.stringify({ time: new Date().toISOString(), type: 'device', path, chain_break: chainBreak })
}
