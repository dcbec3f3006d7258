/**
 * The head of a device's chain on this server, and the rules by which a file may advance it.
 *
 * The head is in memory while the core is active, and stored in the barrier (`audit-store.ts`). While it is exact (this process has
 * written the line), the file must end with it. After a crash the stored head may be older than the file by the lines of the last
 * minute: then the end of the file is accepted if its MAC is valid and its number is higher. An end without a valid MAC is
 * accepted only if no head is known: when a device is enabled on a file that another device has written, and once at the upgrade
 * from lines without MACs.
 */
import { hash } from 'node:crypto'
import { type ChainEvent, type ChainHead, ChainKey, formatLine, hasValidDeviceMac, hasValidMac } from './audit-chain.ts'

/** A file that did not end with the last line that this server had written. */
export interface ChainBreak {
  readonly file: string
  readonly expected: ChainHead
  /** Undefined if the last line was not written by an audit device. */
  readonly found: ChainHead | undefined
}

/** The last whole line of a file. */
export interface FileEnd {
  /** Undefined for text that no device has written. */
  readonly head: ChainHead | undefined
  readonly line: string
}

/** `new`: no head is known. `legacy`: the head of lines without MACs. `keyed`: the device writes MACs. */
export type HeadTrust = 'new' | 'legacy' | 'keyed'

export interface ChainState {
  readonly id: string
  readonly head: ChainHead
  /** No line of this chain was written yet, so the next one has the event `start`. */
  readonly isNew: boolean
  readonly trust: HeadTrust
}

type EndVerdict = 'expected' | 'accepted' | 'break'

export class DeviceChain {
  readonly #deviceKey: Buffer
  readonly #key: ChainKey
  readonly #trust: HeadTrust
  #head: ChainHead
  #isNew: boolean
  /** This process has written the head or has read it at the end of the file. */
  #isExact = false
  /** Lines of a failed write that could not be undone, which may be in the file. */
  readonly #attempted = new Map<string, ChainHead>()
  #pendingBreak: ChainBreak | undefined

  constructor(deviceKey: Buffer, { head, id, isNew, trust }: ChainState) {
    this.#deviceKey = deviceKey
    this.#key = new ChainKey(deviceKey, id)
    this.#head = head
    this.#isNew = isNew
    this.#trust = trust
  }

  get id(): string {
    return this.#key.id
  }

  get head(): ChainHead {
    return this.#head
  }

  /** No line of this chain was written yet. */
  get isNew(): boolean {
    return this.#isNew
  }

  /** The stored head may be older than the last written line, which may be in a rotated file. */
  get isBehind(): boolean {
    return !this.#isExact && !this.#isNew
  }

  /** A break that no line has recorded yet. */
  get pendingBreak(): ChainBreak | undefined {
    return this.#pendingBreak
  }

  /** Formats lines that follow the head. `heads` has the head after each line. */
  append(lines: readonly string[], prefix: string): { readonly text: string; readonly heads: readonly ChainHead[] } {
    let head = this.#head
    let text = ''
    const heads = lines.map((json, at) => {
      const event: ChainEvent | undefined =
        at > 0 ? undefined : this.#pendingBreak ? 'break' : this.#isNew ? 'start' : undefined
      const line = formatLine(json, { event, head, key: this.#key, prefix })
      text += `${line}\n`
      return (head = { sequence: head.sequence + 1, hash: hash('sha256', line) })
    })
    return { text, heads }
  }

  /** Sets the head after its line was recorded or may have been recorded. */
  advance(head: ChainHead): void {
    this.#head = head
    this.#isNew = false
    this.#isExact = true
    this.#pendingBreak = undefined
    this.#attempted.clear()
  }

  /** Notes the lines of a failed write, of which some may be in the file. */
  noteAttempt(heads: readonly ChainHead[]): void {
    for (const head of heads) this.#attempted.set(head.hash, head)
  }

  /** Accepts an empty file: nothing contradicts the head. */
  acceptEmpty(): void {
    this.#isExact = true
  }

  /** Advances the head to the end of a rotated file of this device, if that is newer than the stored head. */
  acceptRotated(end: FileEnd): void {
    const { head } = end
    if (head && this.isBehind && head.sequence > this.#head.sequence && hasValidMac(end.line, this.#key))
      this.#head = head
  }

  /** Compares the end of a file with the head. `isInserted`: other lines precede the end. A break is kept until a line records it. */
  acceptEnd(end: FileEnd, file: string, isInserted: boolean): EndVerdict {
    const endVerdict = this.#judge(end)
    const verdict = endVerdict === 'expected' && isInserted ? 'break' : endVerdict
    if (verdict === 'accepted' && end.head) this.#head = end.head
    if (verdict === 'break') this.#pendingBreak = { file, expected: this.#head, found: end.head }
    this.#isExact = true
    return verdict
  }

  #judge({ head, line }: FileEnd): EndVerdict {
    if (!head) return 'break'
    if (head.hash === this.#head.hash) return 'expected'
    if (this.#attempted.has(head.hash)) return 'accepted'
    if (this.#isExact) return 'break'
    const isAhead = head.sequence > this.#head.sequence
    if (!this.#isNew) return isAhead && hasValidMac(line, this.#key) ? 'accepted' : 'break'
    // A new chain of a device with MACs: the file precedes a restore or an initial sync.
    if (this.#trust === 'keyed') return hasValidDeviceMac(line, this.#deviceKey) ? 'accepted' : 'break'
    return isAhead || this.#trust === 'new' ? 'accepted' : 'break'
  }

  /** Overwrites the key. */
  close(): void {
    this.#key.close()
  }
}
