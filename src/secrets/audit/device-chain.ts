/**
 * Where the chain of one device stands on this server, and what may be believed of a file about that.
 *
 * The head is in memory while the core is open and in the barrier otherwise (`audit-store.ts`). While it is exact (this
 * process wrote the line), a file must end with it. After a start the stored head may be older than the file by the lines
 * of the last minute before a kill: then the end of the file is taken, if its code is right and its number is higher. The
 * end of a file without a right code is taken only where no head is known: when a device is enabled on a file that another
 * device left, and once at the upgrade from lines without codes.
 */
import { hash } from 'node:crypto'
import { type ChainEvent, type ChainHead, ChainKey, hasCode, hasCodeOfDevice, linked } from './audit-chain.ts'

/** A file that did not end with the line that this server had written last. */
export interface ChainBreak {
  readonly file: string
  readonly expected: ChainHead
  /** Absent where the last line was not written by an audit device. */
  readonly found: ChainHead | undefined
}

/** The last whole line of a file. */
export interface FileEnd {
  /** Undefined for text that no device has written. */
  readonly head: ChainHead | undefined
  readonly line: string
}

/** `new`: no head is known. `legacy`: a head of lines without codes. `keyed`: the device has codes. */
export type Trust = 'new' | 'legacy' | 'keyed'

export interface ChainState {
  readonly id: string
  readonly head: ChainHead
  /** No line of this chain was written yet: the next one has the event `start`. */
  readonly isNew: boolean
  readonly trust: Trust
}

type Judgement = 'as expected' | 'taken' | 'break'

export class DeviceChain {
  readonly #deviceKey: Buffer
  readonly #key: ChainKey
  readonly #trust: Trust
  #head: ChainHead
  #isNew: boolean
  /** This process wrote the head, or has seen it at the end of the file. */
  #isExact = false
  /** Lines of a write that failed and could not be undone: they may be in the file. */
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

  /** The stored head may be older than the lines that were written: an older file may have a newer one. */
  get isBehind(): boolean {
    return !this.#isExact && !this.#isNew
  }

  /** A break that no line of the file states yet. */
  get pendingBreak(): ChainBreak | undefined {
    return this.#pendingBreak
  }

  /** Lines behind the head, with their ends of line; `last` is the head that they lead to, `heads` has each of them. */
  append(lines: readonly string[], prefix: string): { readonly text: string; readonly heads: readonly ChainHead[] } {
    let head = this.#head
    let text = ''
    const heads = lines.map((json, at) => {
      const event: ChainEvent | undefined =
        at > 0 ? undefined : this.#pendingBreak ? 'break' : this.#isNew ? 'start' : undefined
      const line = linked(json, { event, head, key: this.#key, prefix })
      text += `${line}\n`
      return (head = { sequence: head.sequence + 1, hash: hash('sha256', line) })
    })
    return { text, heads }
  }

  /** The lines up to this head are recorded, or may be. */
  advance(head: ChainHead): void {
    this.#head = head
    this.#isNew = false
    this.#isExact = true
    this.#pendingBreak = undefined
    this.#attempted.clear()
  }

  /** A write of these lines failed and some of them may have stayed in the file. */
  mayHave(heads: readonly ChainHead[]): void {
    for (const head of heads) this.#attempted.set(head.hash, head)
  }

  /** A file without lines: nothing contradicts the head. */
  foundEmpty(): void {
    this.#isExact = true
  }

  /** Takes the end of an older file of this device, where that is ahead of the stored head. */
  foundOlder(end: FileEnd): void {
    const { head } = end
    if (head && this.isBehind && head.sequence > this.#head.sequence && hasCode(end.line, this.#key)) this.#head = head
  }

  /** Compares the end of a file with the head; `isInserted`: other lines are before the end. A break is kept until a line states it. */
  found(end: FileEnd, file: string, isInserted: boolean): Judgement {
    const known = this.#judge(end)
    const judgement = known === 'as expected' && isInserted ? 'break' : known
    if (judgement === 'taken' && end.head) this.#head = end.head
    if (judgement === 'break') this.#pendingBreak = { file, expected: this.#head, found: end.head }
    this.#isExact = true
    return judgement
  }

  #judge({ head, line }: FileEnd): Judgement {
    if (!head) return 'break'
    if (head.hash === this.#head.hash) return 'as expected'
    if (this.#attempted.has(head.hash)) return 'taken'
    if (this.#isExact) return 'break'
    const isAhead = head.sequence > this.#head.sequence
    if (!this.#isNew) return isAhead && hasCode(line, this.#key) ? 'taken' : 'break'
    // A new chain of a device with codes: the file is from before a restore or a full copy.
    if (this.#trust === 'keyed') return hasCodeOfDevice(line, this.#deviceKey) ? 'taken' : 'break'
    return isAhead || this.#trust === 'new' ? 'taken' : 'break'
  }

  /** Overwrites the key. */
  close(): void {
    this.#key.close()
  }
}
