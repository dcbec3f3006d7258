/** A follower over a real socket, which records what it received, when, and how it ended. It can pause reading. */
import assert from 'node:assert/strict'
import { type ClientRequest, get, type IncomingMessage } from 'node:http'
import { type Frame, FrameReader } from './frames.ts'
import { eventually } from './eventually.ts'

export type Item =
  | {
      readonly kind: 'data'
      readonly file: string
      readonly data: Buffer
      readonly offset: number
      readonly cursor?: string
    }
  | { readonly kind: 'event'; readonly file: string; readonly event: string; readonly offset: number }

export interface TailOptions {
  readonly framed?: boolean
  readonly headers?: Readonly<Record<string, string>>
  /** Receives all data, which is not stored then. */
  readonly onData?: (data: Buffer, file: string | undefined) => void
}

export class TailClient {
  readonly items: Item[] = []
  /** Arrival time of each heartbeat. */
  readonly beatsMs: number[] = []
  status: number | undefined
  headAtMs: number | undefined
  response: IncomingMessage | undefined
  bytes = 0
  /** Time of the last arrival, including heartbeats. */
  bytesAtMs: number | undefined
  /** The last received cursor. */
  cursor: string | undefined
  ended: 'clean' | 'broken' | undefined
  readonly #request: ClientRequest
  readonly #framed: boolean
  readonly #reader = new FrameReader()
  readonly #onData: TailOptions['onData']

  constructor(url: string, options: TailOptions = {}) {
    this.#framed = options.framed ?? true
    this.#onData = options.onData
    this.#request = get(url, { agent: false, headers: options.headers ?? {} }, (response) => {
      this.response = response
      this.status = response.statusCode
      this.headAtMs = performance.now()
      response.on('data', (bytes: Buffer) => this.#take(bytes))
      response.on('error', () => (this.ended ??= 'broken'))
      response.on('end', () => (this.ended ??= response.complete ? 'clean' : 'broken'))
      response.on('close', () => (this.ended ??= response.complete ? 'clean' : 'broken'))
    })
    this.#request.on('error', () => (this.ended ??= 'broken'))
  }

  #take(bytes: Buffer): void {
    this.bytesAtMs = performance.now()
    if (!this.#framed || this.status !== 200) return this.#data(bytes, undefined, 0)
    for (const frame of this.#reader.push(bytes)) this.#frame(frame)
  }

  #frame(frame: Frame): void {
    const { Data: data, File: file = '', FileEvent: event, Offset: offset = 0, Cursor: cursor } = frame
    this.cursor = cursor ?? this.cursor
    if (event !== undefined) this.items.push({ kind: 'event', file, event, offset })
    else if (data !== undefined) this.#data(Buffer.from(data, 'base64'), file, offset, cursor)
    else {
      const { Cursor: _, ...rest } = frame
      assert.deepEqual(rest, {}, 'a frame without data and event is a heartbeat')
      this.beatsMs.push(performance.now())
    }
  }

  #data(data: Buffer, file: string | undefined, offset: number, cursor?: string): void {
    this.bytes += data.length
    if (this.#onData) this.#onData(data, file)
    else
      this.items.push({
        kind: 'data',
        file: file ?? '',
        data: Buffer.from(data),
        offset,
        ...(cursor === undefined ? {} : { cursor }),
      })
  }

  get data(): Buffer {
    return Buffer.concat(this.items.flatMap((item) => (item.kind === 'data' ? [item.data] : [])))
  }

  get text(): string {
    return this.data.toString('latin1')
  }

  get events(): string[] {
    return this.items.flatMap((item) => (item.kind === 'event' ? [`${item.event} ${item.file}`] : []))
  }

  pause(): void {
    this.response?.pause()
  }

  resume(): void {
    this.response?.resume()
  }

  destroy(): void {
    this.#request.destroy()
  }

  /** Waits for the head of the response. */
  async open(): Promise<this> {
    await eventually(() => this.status !== undefined || this.ended !== undefined)
    return this
  }

  async until(check: (client: this) => boolean, limitMs?: number): Promise<void> {
    try {
      await eventually(() => check(this), 'what the follower was to receive', limitMs)
    } catch (error) {
      const seen = this.items
        .slice(-12)
        .map((item) => (item.kind === 'data' ? item.data.toString('latin1', 0, 60) : item.event))
      throw new Error(`${String(error)}; ended: ${this.ended}, ${this.bytes} bytes, last: ${JSON.stringify(seen)}`, {
        cause: error,
      })
    }
  }
}

/** Follows until `check` succeeds, disconnects, and returns what was received. */
export async function take(url: string, check: (client: TailClient) => boolean, framed = true): Promise<TailClient> {
  const client = new TailClient(url, { framed })
  await client.until(check)
  client.destroy()
  return client
}

/** Sends a request and waits for the end of the response. */
export async function ask(url: string, framed = true): Promise<TailClient> {
  const client = new TailClient(url, { framed })
  await client.until(({ ended }) => ended !== undefined)
  assert.equal(client.ended, 'clean', client.text)
  return client
}
