/**
 * Reads audit files, the oldest first, and follows the chain of their lines (`secrets/audit/audit-chain.ts`): the number
 * and the hash of each line must be what the next one states. With what the server knows (`ServerChain`) the line that it
 * names as its head must be in the files, and each line of its chain must have a code that only the server could compute.
 *
 * A line is hashed as it is read and only its end is kept, so memory does not grow with files or lines. The first fault
 * ends the check.
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

/** Bytes read at a time. */
const BLOCK_BYTES = 1 << 20
const NEWLINE = 10
/** Codes that the server checks in one request. */
const CODES_AT_ONCE = 5000

/** The first thing that is wrong, where it is. */
export interface ChainFault {
  readonly file: string
  readonly line: number
  readonly text: string
}

/** How far the lines of the files belong together. */
export interface ChainReport {
  readonly fault: ChainFault | undefined
  /** Number of the first line; undefined where there is none. */
  readonly first: number | undefined
  /** The last line that belongs to the chain. */
  readonly last: ChainHead | undefined
  /** Parts of lines at the end of files, which a killed server leaves. */
  readonly torn: readonly string[]
}

/** What the server knows of the chain. */
export interface ServerChain {
  /** Undefined for a server of a version without codes. */
  readonly id: string | undefined
  readonly head: ChainHead
  /** Resolves with the index of the first wrong code, -1 where there is none; of `id`, SHA-256 and code of each line. */
  readonly firstWrong: (lines: readonly string[]) => Promise<number>
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
  /** SHA-256 of the text that a code covers. */
  readonly digest: string
  readonly link: ChainLink | undefined
  /** The file ends before the line does. */
  readonly isTorn: boolean
}

/** Follows the chain through the files, the oldest first, up to the first fault. Rejects for what cannot be read. */
export async function checkChain(files: readonly string[], options: ChainCheckOptions = {}): Promise<ChainReport> {
  const walk = new ChainWalk(options)
  const codes = new CodeCheck(options.server)
  let isLastEmpty = true
  for (const file of files) {
    let line = 0
    isLastEmpty = true
    for await (const found of linesOf(file)) {
      const position = { file, line: ++line }
      if (found.isTorn) walk.torn.push(`${file}:${line}`)
      else {
        isLastEmpty = false
        walk.step(found, position)
        await codes.add(found, position)
      }
      const fault = codes.fault ?? (walk.fault && ((await codes.finish()) ?? walk.fault))
      if (fault) return walk.report(fault)
    }
  }
  walk.end(files.at(-1) ?? '', isLastEmpty)
  return walk.report((await codes.finish()) ?? walk.fault)
}

/** Has the server check the codes of its chain, many lines in one request. */
class CodeCheck {
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
    if (this.#lines.length >= CODES_AT_ONCE) await this.finish()
  }

  /** Resolves with the first line whose code is wrong. */
  async finish(): Promise<ChainFault | undefined> {
    const lines = this.#lines.splice(0)
    if (this.fault || lines.length === 0 || !this.#server) return this.fault
    const wrong = lines[await this.#server.firstWrong(lines.map(({ text }) => text))]
    if (wrong)
      this.fault = { ...wrong.position, text: 'this line was changed or added: its code is not of this device' }
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
  /** Of the newest line with a code. */
  #id: string | undefined
  #isHeadFound = false
  fault: ChainFault | undefined

  constructor({ from = 1, server }: ChainCheckOptions) {
    this.#from = from
    this.#server = server
  }

  step({ hash, link }: HashedLine, position: LinePosition): void {
    const text = link ? (this.#faultOfCode(link) ?? this.#faultOfHead(link, hash)) : NOT_OURS
    this.fault = (link && this.#faultOfLink(link, position)) ?? (text === undefined ? undefined : { ...position, text })
    if (this.fault || !link) return
    this.#last = { sequence: link.sequence, hash }
    this.#first ??= link.sequence
    this.#id = link.id ?? this.#id
    this.#lastPosition = position
    if (link.sequence === this.#server?.head.sequence) this.#isHeadFound = true
  }

  /** What the server has and the files have not. */
  end(file: string, isLastEmpty: boolean): void {
    const { sequence = 0 } = this.#server?.head ?? {}
    const have = this.#last?.sequence ?? 0
    const line = this.#lastPosition.file === file ? this.#lastPosition.line + 1 : 1
    if (!this.#server && isLastEmpty) {
      this.fault = { file, line, text: 'the file has no line: only with -path it is known whether lines were removed' }
    } else if (sequence > have) {
      const missingLines = `lines ${have + 1} to ${sequence} are missing`
      this.fault = {
        file,
        line,
        text: `${missingLines}: the end was cut, or the newest file is not the last one given`,
      }
    } else if (sequence > 0 && !this.#isHeadFound) {
      this.fault = {
        file,
        line,
        text: `line ${sequence}, which the server names as its last one, is in none of the files`,
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
        text: 'the chain is broken before this line: another program had changed the file, see chain_break',
      }
    }
    if (sequence > last.sequence + 1) {
      return { ...position, text: `${missing(last.sequence + 1, sequence - 1)} removed before this line` }
    }
    if (sequence <= last.sequence) {
      return {
        ...position,
        text: `this line was added, or the files are in another order: number ${sequence} comes after ${last.sequence}`,
      }
    }
    if (previous === last.hash) return undefined
    const next = `the next line (${position.file}:${position.line}) has the hash of another`
    return { ...this.#lastPosition, text: `this line was changed: ${next}` }
  }

  #faultOfFirst(sequence: number, previous: string, position: LinePosition): ChainFault | undefined {
    if (sequence !== this.#from) {
      const older = `give the files with ${missing(1, sequence - 1).replace(/ (?:was|were)$/, '')} too, or -from=${sequence}`
      const text = `the first line has the number ${sequence} instead of ${this.#from}: ${older}`
      return { ...position, text }
    }
    const isStart = sequence !== 1 || previous === CHAIN_START.hash
    return isStart ? undefined : { ...position, text: 'this line was changed: the first line of a chain follows none' }
  }

  /** Codes begin with an event `start`, and after that no line is without one. */
  #faultOfCode({ event, id }: ChainLink): string | undefined {
    if (this.#last === undefined || id === this.#id || event !== undefined) return undefined
    return id === undefined
      ? 'this line was added: it has no code, and lines before it have'
      : 'this line was added: it is of another chain, which does not start here'
  }

  #faultOfHead({ id, sequence }: ChainLink, hash: string): string | undefined {
    const { head, id: own } = this.#server ?? {}
    if (!head) return undefined
    if (sequence === head.sequence && hash !== head.hash) {
      return `line ${sequence} was changed, or all lines up to it were written again: the server has another`
    }
    const isBehind = sequence > head.sequence || (this.#id !== undefined && this.#id === own)
    return isBehind && id !== own ? 'this line was added: it is not of the chain of the server' : undefined
  }
}

const NOT_OURS = 'this line was changed or added: it does not end as the lines of an audit device do'

function missing(from: number, to: number): string {
  return from === to ? `line ${from} was` : `lines ${from} to ${to} were`
}

async function* linesOf(file: string): AsyncGenerator<HashedLine> {
  let line = new LineReader()
  for await (const chunk of createReadStream(file, { highWaterMark: BLOCK_BYTES }) as AsyncIterable<Buffer>) {
    let from = 0
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, from)) {
      line.add(chunk.subarray(from, at))
      yield line.found(false)
      line = new LineReader()
      from = at + 1
    }
    line.add(chunk.subarray(from))
  }
  if (line.isBegun) yield line.found(true)
}

/** Hashes a line that arrives in pieces, and keeps its end. */
class LineReader {
  readonly #hash = createHash('sha256')
  /** Bytes that are not hashed yet: they may be the end. */
  #end: Buffer = Buffer.alloc(0)
  isBegun = false

  add(bytes: Buffer): void {
    if (bytes.length === 0) return
    this.isBegun = true
    const all = this.#end.length === 0 ? bytes : Buffer.concat([this.#end, bytes])
    const length = Math.max(0, all.length - LINK_LENGTH_MAX)
    this.#hash.update(all.subarray(0, length))
    this.#end = Buffer.from(all.subarray(length))
  }

  found(isTorn: boolean): HashedLine {
    const end = this.#end
    const covered = end.subarray(0, Math.max(0, end.length - MAC_LENGTH))
    const digest = this.#hash.copy().update(covered).digest('hex')
    const link = linkOf(end.toString('utf8'))
    return { digest, hash: this.#hash.update(end).digest('hex'), link, isTorn }
  }
}
