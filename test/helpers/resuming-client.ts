/**
 * A follower that resumes after each disconnection, from the last cursor (framed), or from the cursor in the head and
 * the number of bytes since (plain).
 */
import { createHash } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { TailClient } from './tail-client.ts'
import { LineChecker } from './line-checker.ts'

const AGAIN_MS = 20
const LIFE_MS = 600_000

export class ResumingClient {
  readonly framed: boolean
  readonly lines = new LineChecker()
  readonly #hash = createHash('sha256')
  readonly #urlOf: (cursor: string) => string
  /** Unexpected events: a response that is not a stream, an event, a clean end. */
  fault: string | undefined
  bytes = 0
  /** Number of responses. */
  connections = 0
  /** The value of `bytes` when the current connection was answered. */
  bytesAtHead = 0
  #cursor = ''
  #client: TailClient | undefined
  #stopped = false
  readonly #running: Promise<void>

  readonly #bears: ReadonlySet<number>
  /** Number of tolerated error responses. */
  refusals = 0
  /** The last one of them. */
  #refusal = ''

  /** `bears` are statuses after which it retries, such as those of a server whose nodes restart. */
  constructor(framed: boolean, urlOf: (cursor: string) => string, bears: readonly number[] = []) {
    this.framed = framed
    this.#urlOf = urlOf
    this.#bears = new Set(bears)
    this.#running = this.#run()
  }

  /** SHA-256 of everything in hexadecimal; callable once. */
  digest(): string {
    return this.#hash.digest('hex')
  }

  get broken(): string | undefined {
    return this.fault ?? this.lines.fault
  }

  /** A description of its state for error messages. */
  get state(): string {
    const { status, ended, bytes = 0, bytesAtMs } = this.#client ?? {}
    const silentMs = bytesAtMs === undefined ? 'ever' : `${Math.round(performance.now() - bytesAtMs)} ms`
    const now = `now status ${status}, ${ended ?? 'open'}, ${bytes} bytes, none for ${silentMs}`
    return `${this.connections} connections, ${now}; ${this.refusals} refusals, the last: ${this.#refusal}`
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#client?.destroy()
    await this.#running
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      await this.#once()
      await delay(AGAIN_MS)
    }
  }

  /** Reads one connection to its end. */
  async #once(): Promise<void> {
    const before = this.bytes
    let refusal = ''
    const client: TailClient = new TailClient(this.#urlOf(this.#cursor), {
      framed: this.framed,
      onData: (data) => (client.status === 200 ? this.#take(data) : (refusal += data.toString('latin1'))),
    })
    this.#client = client
    await client.until(({ status, ended }) => status !== undefined || ended !== undefined || this.#stopped, LIFE_MS)
    if (this.#stopped) return client.destroy()
    if (client.status === 200) {
      this.connections++
      this.bytesAtHead = before
    }
    await client.until(({ ended }) => ended !== undefined || this.#stopped, LIFE_MS)
    if (this.#stopped) return
    if (client.status === 200) this.#keepPlace(client, this.bytes - before)
    else if (client.status !== undefined && this.#bears.has(client.status)) {
      this.refusals++
      this.#refusal = `${client.status} ${refusal}`
      return
    } else if (client.status !== undefined) this.fault ??= `status ${client.status}: ${refusal}`
    if (client.ended === 'clean') this.fault ??= 'a clean end'
    if (client.events.length > 0) this.fault ??= client.events.join()
  }

  #keepPlace(client: TailClient, received: number): void {
    const headers = client.response?.headers ?? {}
    const event = headers['x-outpost-event']
    if (event !== undefined) this.fault ??= String(event)
    if (this.framed) this.#cursor = client.cursor ?? this.#cursor
    else this.#cursor = `${String(headers['x-outpost-cursor'])}~${received}`
  }

  #take(data: Buffer): void {
    this.bytes += data.length
    this.#hash.update(data)
    this.lines.push(data)
  }
}
