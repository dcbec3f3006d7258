/**
 * Reads audit files in their order and follows the chain of their lines (`secrets/audit/audit-chain.ts`): the number and the
 * hash of each line must be what the next one says. A line is hashed as it is read and only its end is kept, so a file of
 * any size, with lines of any length, costs the same memory.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { CHAIN_START, type ChainHead, type Link, linkOf, LINK_LENGTH_MAX } from '../../secrets/audit/audit-chain.ts'

/** Read at a time. */
const BLOCK_BYTES = 1 << 20
const NEWLINE = 10

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

interface Place {
  readonly file: string
  readonly line: number
}

interface FoundLine {
  readonly hash: string
  readonly link: Link | undefined
  /** It has no end: the end of the file came first. */
  readonly isTorn: boolean
}

/** Follows the chain through the files, the oldest first, up to the first fault. Rejects for what cannot be read. */
export async function checkChain(files: readonly string[], expected?: ChainHead): Promise<ChainReport> {
  const walk = new ChainWalk(expected)
  for (const file of files) {
    let line = 0
    for await (const found of linesOf(file)) {
      line++
      if (found.isTorn) walk.torn.push(`${file}:${line}`)
      else walk.step(found, { file, line })
      if (walk.fault) return walk.report()
    }
  }
  walk.end(files.at(-1) ?? '')
  return walk.report()
}

class ChainWalk {
  readonly torn: string[] = []
  readonly #expected: ChainHead | undefined
  #first: number | undefined
  #last: ChainHead | undefined
  #lastPlace: Place = { file: '', line: 0 }
  fault: ChainFault | undefined

  constructor(expected: ChainHead | undefined) {
    this.#expected = expected
  }

  step({ hash, link }: FoundLine, place: Place): void {
    this.fault = link ? this.#faultOf(link, place) : { ...place, text: NOT_OURS }
    if (this.fault || !link) return
    this.#last = { sequence: link.sequence, hash }
    this.#first ??= link.sequence
    this.#lastPlace = place
    const { hash: known, sequence } = this.#expected ?? {}
    if (link.sequence !== sequence || hash === known) return
    this.fault = {
      ...place,
      text: `line ${sequence} was changed, or all lines up to it were made anew: the server has another`,
    }
  }

  /** What the server has and the files have not. */
  end(file: string): void {
    const { sequence = 0 } = this.#expected ?? {}
    const have = this.#last?.sequence ?? 0
    if (sequence <= have) return
    const text = `lines ${have + 1} to ${sequence} are missing: the end was cut, or the newest file is not the last one given`
    this.fault = { file, line: this.#lastPlace.file === file ? this.#lastPlace.line + 1 : 1, text }
  }

  report(): ChainReport {
    return { fault: this.fault, first: this.#first, last: this.#last, torn: this.torn }
  }

  #faultOf({ previous, sequence }: Link, place: Place): ChainFault | undefined {
    const last = this.#last
    if (!last) {
      // What was before the first line that is given, nothing tells, unless it is the very first.
      const isStart = sequence !== 1 || previous === CHAIN_START.hash
      return isStart ? undefined : { ...place, text: 'this line was changed: the first line of a chain follows none' }
    }
    if (sequence > last.sequence + 1) {
      return { ...place, text: `${missing(last.sequence + 1, sequence - 1)} removed before this line` }
    }
    if (sequence <= last.sequence) {
      return {
        ...place,
        text: `this line was added, or the files are in another order: number ${sequence} comes after ${last.sequence}`,
      }
    }
    if (previous === last.hash) return undefined
    const next = `the next line (${place.file}:${place.line}) has the hash of another`
    return { ...this.#lastPlace, text: `this line was changed: ${next}` }
  }
}

const NOT_OURS = 'this line was changed or added: it does not end as the lines of an audit device do'

function missing(from: number, to: number): string {
  return from === to ? `line ${from} was` : `lines ${from} to ${to} were`
}

async function* linesOf(file: string): AsyncGenerator<FoundLine> {
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

class LineReader {
  readonly #hash = createHash('sha256')
  #end: Buffer = Buffer.alloc(0)
  isBegun = false

  add(bytes: Buffer): void {
    if (bytes.length === 0) return
    this.isBegun = true
    this.#hash.update(bytes)
    const end = bytes.length >= LINK_LENGTH_MAX ? bytes : Buffer.concat([this.#end, bytes])
    this.#end = Buffer.from(end.subarray(-LINK_LENGTH_MAX))
  }

  found(isTorn: boolean): FoundLine {
    return { hash: this.#hash.digest('hex'), link: linkOf(this.#end.toString('utf8')), isTorn }
  }
}
