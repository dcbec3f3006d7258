/**
 * Verifies the hash chain of audit files, oldest first (`secrets/audit/audit-chain.ts`): each line states the number and the hash of
 * the previous one. With the chain of the server (`ServerChain`), the head of the server must be in the files, and the HMAC of each
 * line of its chain must be valid.
 *
 * Lines are hashed while they are read, and only the end of a line is kept, so memory does not grow with the size of files or lines.
 * The check ends at the first fault.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import {
  CHAIN_START,
  type ChainHead,
  type ChainLink,
  linkOf,
  LINK_LENGTH_MAX,
  MAC_LENGTH,
} from '../../../secrets/audit/audit-chain.ts'

const BLOCK_BYTES = 1 << 20
const NEWLINE = 10
/** Lines whose HMAC the server verifies in one request. */
const HMACS_PER_REQUEST = 5000

/** The first fault and its position. */
export interface ChainFault {
  readonly file: string
  readonly line: number
  readonly text: string
}

/** The verified range of lines. */
export interface ChainReport {
  readonly fault: ChainFault | undefined
  /** Number of the first line; undefined without lines. */
  readonly first: number | undefined
  /** The last valid line. */
  readonly last: ChainHead | undefined
  /** Positions of incomplete lines at the end of files, which a killed server leaves. */
  readonly torn: readonly string[]
}

/** The state of the chain on the server. */
export interface ServerChain {
  /** Undefined for a server version without HMACs. */
  readonly id: string | undefined
  readonly head: ChainHead
  /** Takes `id`, SHA-256 and HMAC of each line; resolves with the index of the first invalid HMAC, -1 without one. */
  readonly firstInvalid: (lines: readonly string[]) => Promise<number>
}

export interface ChainCheckOptions {
  /** Number that the first line must have; 1 unless given. */
  readonly from?: number | undefined
  readonly server?: ServerChain | undefined
}

interface LinePosition {
  readonly file: string
  readonly line: number
}

interface HashedLine {
  readonly hash: string
  /** SHA-256 of the text that the HMAC covers. */
  readonly digest: string
  readonly link: ChainLink | undefined
  /** The file ends within the line. */
  readonly isTorn: boolean
}

/** Verifies the chain of the files, oldest first, up to the first fault. Rejects if a file cannot be read. */
export async function checkChain(files: readonly string[], options: ChainCheckOptions = {}): Promise<ChainReport> {
  const walk = new ChainWalk(options)
  const hmacs = new HmacCheck(options.server)
  let isLastEmpty = true
  for (const file of files) {
    let line = 0
    isLastEmpty = true
    for await (const hashed of linesOf(file)) {
      const position = { file, line: ++line }
      if (hashed.isTorn) walk.torn.push(`${file}:${line}`)
      else {
        isLastEmpty = false
        walk.step(hashed, position)
        await hmacs.add(hashed, position)
      }
      const fault = hmacs.fault ?? (walk.fault && ((await hmacs.finish()) ?? walk.fault))
      if (fault) return walk.report(fault)
    }
  }
  walk.end(files.at(-1) ?? '', isLastEmpty)
  return walk.report((await hmacs.finish()) ?? walk.fault)
}

/** Sends lines in batches to the server, which verifies their HMACs. */
class HmacCheck {
  readonly #server: ServerChain | undefined
  #lines: { readonly position: LinePosition; readonly text: string }[] = []
  fault: ChainFault | undefined

  constructor(server: ServerChain | undefined) {
    this.#server = server
  }

  async add({ digest, link }: HashedLine, position: LinePosition): Promise<void> {
    const id = this.#server?.id
    if (id === undefined || link?.id !== id) return
    this.#lines.push({ position, text: `${id} ${digest} ${link.mac}` })
    if (this.#lines.length >= HMACS_PER_REQUEST) await this.finish()
  }

  /** Resolves with the first line whose HMAC is invalid. */
  async finish(): Promise<ChainFault | undefined> {
    const lines = this.#lines.splice(0)
    if (this.fault || lines.length === 0 || !this.#server) return this.fault
    const invalid = lines[await this.#server.firstInvalid(lines.map(({ text }) => text))]
    if (invalid) this.fault = { ...invalid.position, text: 'line changed or added: its HMAC is invalid' }
    return this.fault
  }
}

class ChainWalk {
  readonly torn: string[] = []
  readonly #from: number
  readonly #server: ServerChain | undefined
  #first: number | undefined
  #last: ChainHead | undefined
  #lastPosition: LinePosition = { file: '', line: 0 }
  /** Of the latest line with an HMAC. */
  #id: string | undefined
  #isHeadFound = false
  fault: ChainFault | undefined

  constructor({ from = 1, server }: ChainCheckOptions) {
    this.#from = from
    this.#server = server
  }

  step({ hash, link }: HashedLine, position: LinePosition): void {
    const text = link ? (this.#faultOfId(link) ?? this.#faultOfHead(link, hash)) : NOT_AN_AUDIT_LINE
    this.fault = (link && this.#faultOfLink(link, position)) ?? (text === undefined ? undefined : { ...position, text })
    if (this.fault || !link) return
    this.#last = { sequence: link.sequence, hash }
    this.#first ??= link.sequence
    this.#id = link.id ?? this.#id
    this.#lastPosition = position
    if (link.sequence === this.#server?.head.sequence) this.#isHeadFound = true
  }

  /** Detects lines that the server has and the files lack. */
  end(file: string, isLastEmpty: boolean): void {
    const { sequence = 0 } = this.#server?.head ?? {}
    const have = this.#last?.sequence ?? 0
    const line = this.#lastPosition.file === file ? this.#lastPosition.line + 1 : 1
    if (!this.#server && isLastEmpty) {
      this.fault = { file, line, text: 'the file has no lines: use -path to detect removed lines' }
    } else if (sequence > have) {
      const missingLines = `lines ${have + 1} to ${sequence} are missing`
      this.fault = {
        file,
        line,
        text: `${missingLines}: the file was truncated, or the newest file is not the last argument`,
      }
    } else if (sequence > 0 && !this.#isHeadFound) {
      this.fault = {
        file,
        line,
        text: `line ${sequence}, the last line of the server, is in none of the files`,
      }
    }
  }

  report(fault: ChainFault | undefined): ChainReport {
    return { fault, first: this.#first, last: this.#last, torn: this.torn }
  }

  #faultOfLink({ event, previous, sequence }: ChainLink, position: LinePosition): ChainFault | undefined {
    const last = this.#last
    if (!last) return this.#faultOfFirst(sequence, previous, position)
    if (event === 'break') {
      return {
        ...position,
        text: 'chain broken before this line: another program changed the file, see chain_break',
      }
    }
    if (sequence > last.sequence + 1) {
      return { ...position, text: `${missing(last.sequence + 1, sequence - 1)} removed before this line` }
    }
    if (sequence <= last.sequence) {
      return {
        ...position,
        text: `line added, or files in the wrong order: number ${sequence} follows ${last.sequence}`,
      }
    }
    if (previous === last.hash) return undefined
    const next = `the next line (${position.file}:${position.line}) contains a different hash of this line`
    return { ...this.#lastPosition, text: `line changed: ${next}` }
  }

  #faultOfFirst(sequence: number, previous: string, position: LinePosition): ChainFault | undefined {
    if (sequence !== this.#from) {
      const older = `add the files with ${missing(1, sequence - 1).replace(/ (?:was|were)$/, '')}, or use -from=${sequence}`
      const text = `the first line is number ${sequence}, expected number ${this.#from}: ${older}`
      return { ...position, text }
    }
    const isStart = sequence !== 1 || previous === CHAIN_START.hash
    return isStart ? undefined : { ...position, text: 'line changed: the first line of a chain has no previous line' }
  }

  /** HMACs start with an event `start`; all later lines have one. */
  #faultOfId({ event, id }: ChainLink): string | undefined {
    if (this.#last === undefined || id === this.#id || event !== undefined) return undefined
    return id === undefined
      ? 'line added: it has no HMAC, but earlier lines have'
      : 'line added: it belongs to another chain, which does not start here'
  }

  #faultOfHead({ id, sequence }: ChainLink, hash: string): string | undefined {
    const { head, id: own } = this.#server ?? {}
    if (!head) return undefined
    if (sequence === head.sequence && hash !== head.hash) {
      return `line ${sequence} was changed, or all lines up to it were rewritten: the server has another hash`
    }
    const isBehind = sequence > head.sequence || (this.#id !== undefined && this.#id === own)
    return isBehind && id !== own ? 'line added: it does not belong to the chain of the server' : undefined
  }
}

const NOT_AN_AUDIT_LINE = 'line changed or added: it does not end like a line of an audit device'

function missing(from: number, to: number): string {
  return from === to ? `line ${from} was` : `lines ${from} to ${to} were`
}

async function* linesOf(file: string): AsyncGenerator<HashedLine> {
  let line = new LineReader()
  for await (const chunk of createReadStream(file, { highWaterMark: BLOCK_BYTES }) as AsyncIterable<Buffer>) {
    let from = 0
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, from)) {
      line.add(chunk.subarray(from, at))
      yield line.finish(false)
      line = new LineReader()
      from = at + 1
    }
    line.add(chunk.subarray(from))
  }
  if (!line.isEmpty) yield line.finish(true)
}

/** Hashes a line that arrives in pieces and keeps its end. */
class LineReader {
  readonly #hash = createHash('sha256')
  /** Bytes that are not hashed yet, because they may contain the link. */
  #end: Buffer = Buffer.alloc(0)
  isEmpty = true

  add(bytes: Buffer): void {
    if (bytes.length === 0) return
    this.isEmpty = false
    const all = this.#end.length === 0 ? bytes : Buffer.concat([this.#end, bytes])
    const length = Math.max(0, all.length - LINK_LENGTH_MAX)
    this.#hash.update(all.subarray(0, length))
    this.#end = Buffer.from(all.subarray(length))
  }

  finish(isTorn: boolean): HashedLine {
    const end = this.#end
    const covered = end.subarray(0, Math.max(0, end.length - MAC_LENGTH))
    const digest = this.#hash.copy().update(covered).digest('hex')
    const link = linkOf(end.toString('utf8'))
    return { digest, hash: this.#hash.update(end).digest('hex'), link, isTorn }
  }
}
