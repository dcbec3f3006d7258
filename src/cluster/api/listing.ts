/**
 * Answers from the roster: one record, or a list of any length, at once or as a blocking query. A list is built and written in
 * pieces, and other work runs between them: neither its length nor a filter without matches delays other requests, and memory
 * does not grow with its length.
 */
import { Refusal } from '../../platform/errors.ts'
import { type Call, type Chunk, JsonText } from '../../platform/operation.ts'
import { yieldIfDue } from '../../platform/scheduler.ts'
import type { QueryTopic, RosterQueries } from '../roster/roster-queries.ts'
import { type FilterExpression, parseFilter } from './filter.ts'
import type { ListInput, ReadInput } from './query.ts'

const PIECE_LENGTH = 64 * 1024
/** Records that are processed without yielding. */
const BATCH = 64
const PER_PAGE_MAX = 100_000
/** Relative jitter of the timeout, so that queries that began together do not end together. */
const JITTER = 1 / 16
const PRETTY_INDENT = 4

/** The records of a list, and their representation. */
export interface RecordList<T> {
  readonly topic: QueryTopic
  /** In order, starting at the record with the token `from`. Called after the blocking query. */
  records(from: string | undefined): Iterable<T>
  /** False for a record that is not part of the list, or that the caller may not see. Default: all are. */
  readonly isVisible?: (record: T) => boolean
  /** Value of `next_token` for a page that starts with the record. */
  tokenOf(record: T): string
  text(record: T): string
  /** What a filter expression is applied to. */
  readonly filtered: { readonly fields: ReadonlySet<string>; value(record: T): Readonly<Record<string, unknown>> }
}

/** Headers of each read. */
export function readHeaders(index: number): Record<string, string> {
  return { 'X-Nomad-Index': String(index), 'X-Nomad-KnownLeader': 'true', 'X-Nomad-LastContact': '0' }
}

/** Runs the blocking query, if requested; returns the index of the topic. A stop of this process ends it. */
async function waitForChange(queries: RosterQueries, topic: QueryTopic, input: ReadInput, call: Call): Promise<number> {
  if (input.index > 0) {
    const waitMs = input.wait * (1 + Math.random() * JITTER)
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
  const index = await waitForChange(queries, query.topic, query.input, query.call)
  const value = find()
  if (value === undefined) throw new Refusal('not_found', missing, readHeaders(index))
  return new JsonText(JSON.stringify(value), readHeaders(index))
}

/** The list as the chunks of an answer. An invalid filter or page size is refused before the head. */
export async function* streamList<T>(
  queries: RosterQueries,
  list: RecordList<T>,
  input: ListInput,
  call: Call,
): AsyncGenerator<Chunk> {
  const { fields } = list.filtered
  const filter = input.filter === undefined ? undefined : parseFilter(input.filter, fields)
  if (input.per_page > PER_PAGE_MAX) throw new Refusal('invalid_request', `per_page must be at most ${PER_PAGE_MAX}`)
  const headers = readHeaders(await waitForChange(queries, list.topic, input, call))
  let batches: AsyncIterable<readonly T[]> | Iterable<readonly T[]> = matching(list, filter, input.next_token, call)
  if (input.per_page > 0) {
    const page = await pageOf(batches, input.per_page)
    if (page.next !== undefined) headers['X-Nomad-NextToken'] = list.tokenOf(page.next)
    batches = inBatches(page.records)
  }
  const isPretty = call.raw.query.some(([name, value]) => name === 'pretty' && value !== '0')
  yield* streamed(
    jsonPieces(batches, (record) => list.text(record), isPretty),
    headers,
  )
}

/** Matching records in batches; other work runs between them. */
async function* matching<T>(
  list: RecordList<T>,
  filter: FilterExpression | undefined,
  from: string | undefined,
  call: Call,
) {
  const { isVisible = () => true } = list
  let batch: T[] = []
  let visited = 0
  for (const record of list.records(from)) {
    if (isVisible(record) && (!filter || filter(list.filtered.value(record)))) batch.push(record)
    if (++visited % BATCH !== 0) continue
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

/** A JSON array in pieces. The memory of a piece is reused for the second piece after it. */
async function* jsonPieces<T>(
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
 * Collects text into pieces. A long list uses two alternating buffers: the garbage of new ones, megabytes for each request, would
 * cost more than the list.
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
    // A UTF-16 code unit has at most three bytes of UTF-8.
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

/** A list of one piece is sent with its length. */
async function* streamed(bodies: AsyncGenerator<Buffer>, headers: Record<string, string>): AsyncGenerator<Chunk> {
  const first = await bodies.next()
  if (first.done) return
  // Only the last piece is shorter.
  const isWhole = first.value.length < PIECE_LENGTH
  const head = { status: 200, contentType: 'application/json', headers } as const
  yield isWhole ? { ...head, contentLength: first.value.length } : head
  yield first.value
  if (!isWhole) yield* bodies
}

/** U+2028 and U+2029 end a line in old JavaScript. The compatible system escapes them. */
function escaped(json: string): string {
  return /[\u2028\u2029]/.test(json) ? json.replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029') : json
}
