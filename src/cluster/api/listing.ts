/**
 * Answers of a server about what it has heard: one record, or a list of any length. Both can wait for a change first. A
 * list is made and written piece by piece, with turns of the event loop between: neither its length nor a filter that
 * nothing matches holds anybody up, and memory does not grow with it.
 */
import { yieldIfDue } from '../../platform/scheduler.ts'
import { Refusal } from '../../platform/errors.ts'
import { type Call, type Chunk, JsonText } from '../../platform/operation.ts'
import { type Filter, parseFilter } from './filter.ts'
import type { RosterQueries, QueryTopic } from '../roster/roster-queries.ts'
import type { ListInput, ReadInput } from './query.ts'

const PIECE_LENGTH = 64 * 1024
/** Records between two looks at the clock. */
const BATCH = 64
/** A larger page is no page. */
const PER_PAGE_MAX = 100_000
/** Waiting ends at different times for those who began together. */
const JITTER_PART = 1 / 16
const PRETTY_INDENT = 4

/** One list: where its records come from and how they look. */
export interface Listing<T> {
  readonly topic: QueryTopic
  /** In order, beginning with the record that `from` names. Asked for when waiting is over. */
  records(from: string | undefined): Iterable<T>
  /** False for what the caller may not see; absent where that is settled. */
  readonly isSeen?: (record: T) => boolean
  /** What `next_token` names it with. */
  tokenOf(record: T): string
  text(record: T): string
  /** What a filter looks at. */
  readonly filtered: { readonly fields: ReadonlySet<string>; value(record: T): Readonly<Record<string, unknown>> }
}

/** Headers of every read. */
export function readHeaders(index: number): Record<string, string> {
  return { 'X-Nomad-Index': String(index), 'X-Nomad-KnownLeader': 'true', 'X-Nomad-LastContact': '0' }
}

/** Waits for a change, as the caller asked; returns the index of the topic after that. A drain ends the wait. */
export async function settled(
  queries: RosterQueries,
  topic: QueryTopic,
  input: ReadInput,
  call: Call,
): Promise<number> {
  if (input.index > 0) {
    const waitMs = input.wait * (1 + Math.random() * JITTER_PART)
    const signals = call.draining ? [call.signal, call.draining] : [call.signal]
    await queries.waitForChange(topic, input.index, { waitMs, signals })
  }
  return queries.indexOf(topic)
}

/** One record, or the refusal `missing` (404). */
export async function readOne(
  queries: RosterQueries,
  query: { readonly topic: QueryTopic; readonly input: ReadInput; readonly call: Call },
  find: () => unknown,
  missing: string,
): Promise<JsonText> {
  const index = await settled(queries, query.topic, query.input, query.call)
  const value = find()
  if (value === undefined) throw new Refusal('not_found', missing, readHeaders(index))
  return new JsonText(JSON.stringify(value), readHeaders(index))
}

/** A list as the body of an answer. A bad filter or page is refused before anything is sent. */
export async function* list<T>(
  queries: RosterQueries,
  listing: Listing<T>,
  input: ListInput,
  call: Call,
): AsyncGenerator<Chunk> {
  const { fields } = listing.filtered
  const filter = input.filter === undefined ? undefined : parseFilter(input.filter, fields)
  if (input.per_page > PER_PAGE_MAX) throw new Refusal('invalid_request', `per_page is more than ${PER_PAGE_MAX}`)
  const headers = readHeaders(await settled(queries, listing.topic, input, call))
  let batches: AsyncIterable<readonly T[]> | Iterable<readonly T[]> = matching(listing, filter, input.next_token, call)
  if (input.per_page > 0) {
    const page = await pageOf(batches, input.per_page)
    if (page.next !== undefined) headers['X-Nomad-NextToken'] = listing.tokenOf(page.next)
    batches = inBatches(page.records)
  }
  const isPretty = call.raw.query.some(([name, value]) => name === 'pretty' && value !== '0')
  yield* written(
    pieces(batches, (record) => listing.text(record), isPretty),
    headers,
  )
}

/** Those that match, some at a time, with turns for others between. */
async function* matching<T>(listing: Listing<T>, filter: Filter | undefined, from: string | undefined, call: Call) {
  const { isSeen = () => true } = listing
  let batch: T[] = []
  let looked = 0
  for (const record of listing.records(from)) {
    if (isSeen(record) && (!filter || filter(listing.filtered.value(record)))) batch.push(record)
    if (++looked % BATCH !== 0) continue
    if (batch.length > 0) yield batch
    batch = []
    const turn = yieldIfDue()
    if (turn) await turn
    if (call.signal.aborted) return
  }
  yield batch
}

async function pageOf<T>(
  batches: AsyncIterable<readonly T[]>,
  size: number,
): Promise<{ records: T[]; next: T | undefined }> {
  const records: T[] = []
  for await (const batch of batches) {
    records.push(...batch)
    if (records.length > size) return { records: records.slice(0, size), next: records[size] }
  }
  return { records, next: undefined }
}

function* inBatches<T>(records: readonly T[]): Generator<readonly T[]> {
  for (let from = 0; from < records.length; from += BATCH) yield records.slice(from, from + BATCH)
}

/** A JSON array in pieces. The bytes of one are used again for the second one behind it. */
async function* pieces<T>(
  batches: AsyncIterable<readonly T[]> | Iterable<readonly T[]>,
  textOf: (record: T) => string,
  isPretty: boolean,
): AsyncGenerator<Buffer> {
  const writer = new PieceWriter()
  writer.add('[')
  let isFirst = true
  for await (const batch of batches) {
    for (const record of batch) {
      const one = escaped(textOf(record))
      if (!isFirst) writer.add(',')
      writer.add(isPretty ? indented(one) : one)
      isFirst = false
      if (writer.isFull) yield writer.take()
    }
    const turn = yieldIfDue()
    if (turn) await turn
  }
  writer.add(isPretty ? `${isFirst ? '' : '\n'}]\n` : ']')
  yield writer.take()
}

/**
 * Gathers text into pieces. A long list goes through the same two buffers: making new ones for megabytes a request would
 * keep the garbage collector busy with everything else in memory, and that takes longer than the list.
 */
class PieceWriter {
  #small = ''
  #pair: [Buffer, Buffer] | undefined
  #at = 0

  get isFull(): boolean {
    return this.#pair ? this.#at >= PIECE_LENGTH : this.#small.length >= PIECE_LENGTH
  }

  add(text: string): void {
    if (!this.#pair) {
      this.#small += text
      return
    }
    const [current] = this.#pair
    // Three bytes are the most that one unit of text becomes.
    if (this.#at + text.length * 3 > current.length) this.#grow(text.length * 3)
    this.#at += this.#pair[0].write(text, this.#at)
  }

  #grow(bytes: number): void {
    if (!this.#pair) return
    const larger = Buffer.allocUnsafeSlow(this.#at + bytes + PIECE_LENGTH)
    this.#pair[0].copy(larger, 0, 0, this.#at)
    this.#pair[0] = larger
  }

  take(): Buffer {
    if (!this.#pair) {
      const first = Buffer.from(this.#small)
      if (first.length >= PIECE_LENGTH) {
        this.#pair = [Buffer.allocUnsafeSlow(2 * PIECE_LENGTH), Buffer.allocUnsafeSlow(2 * PIECE_LENGTH)]
      }
      this.#small = ''
      return first
    }
    const [current, other] = this.#pair
    const piece = current.subarray(0, this.#at)
    this.#pair = [other, current]
    this.#at = 0
    return piece
  }
}

function indented(json: string): string {
  const text = JSON.stringify(JSON.parse(json), null, PRETTY_INDENT)
  return `\n${text.replaceAll(/^/gm, ' '.repeat(PRETTY_INDENT))}`
}

/** What fits one piece goes out with its length. */
async function* written(bodies: AsyncGenerator<Buffer>, headers: Record<string, string>): AsyncGenerator<Chunk> {
  const first = await bodies.next()
  if (first.done) return
  // Whatever is not the last piece is at least so long.
  const isWhole = first.value.length < PIECE_LENGTH
  const head = { status: 200, contentType: 'application/json', headers } as const
  yield isWhole ? { ...head, contentLength: first.value.length } : head
  yield first.value
  if (!isWhole) yield* bodies
}

/** U+2028 and U+2029 end a line in old JavaScript; everywhere else here they are escaped too. */
function escaped(json: string): string {
  return /[\u2028\u2029]/.test(json) ? json.replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029') : json
}
