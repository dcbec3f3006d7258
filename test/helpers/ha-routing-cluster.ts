/** Members with a scripted lease whose core is a list of events, connected without a network. */
import { setTimeout as sleep } from 'node:timers/promises'
import { HaRouting, type RoleState } from '../../src/ha/ha-routing.ts'
import type { LeaseHolder } from '../../src/ha/lease/lease.ts'
import { Refusal, sealed } from '../../src/platform/errors.ts'
import {
  type AnyOperation,
  type Call,
  type Chunk,
  isStreamHead,
  StreamedAnswer,
  WholeAnswer,
} from '../../src/platform/operation.ts'
import type { RawInput } from '../../src/platform/schema.ts'
import { Rejection, type StreamEvent } from '../../src/engines/framework/engine.ts'
import { streamedAnswer, watchRequests } from '../../src/secrets/request/event-stream.ts'
import { callOf } from '../host/allocations/host-fixture.ts'

const ENDPOINT = {
  summary: '',
  http: ['GET /v1/:path'],
  target: 'server',
  input: { fields: {}, parse: (raw: RawInput) => raw },
  errorFormat: 'errors',
  authorize: () => undefined,
} as const

type Query = readonly (readonly [string, string])[]

/** The refusal of an error, if it is one. */
export function rejectionOf(error: unknown): string | undefined {
  return error instanceof Refusal && error.message !== 'the caller has disconnected' ? error.message : undefined
}

class ScriptedMember implements RoleState {
  readonly name: string
  readonly listeners = new Set<() => void>()
  readonly operation: AnyOperation
  readonly save: AnyOperation
  readonly restore: AnyOperation
  readonly write: AnyOperation
  phase: RoleState['phase'] = 'standby'
  isServing = false
  isOpen = true
  /** By `isOpen` if it is not set. */
  coreState: 'sealed' | undefined
  isKilled = false
  /** Number of times that the core was closed: streams that began before end as those of a sealed core. */
  closed = 0
  lease: { holder: LeaseHolder | undefined; term: number } = { holder: undefined, term: 0 }
  readonly trouble = undefined
  readonly killed = Promise.withResolvers<never>()

  constructor(name: string, cluster: ScriptedCluster) {
    this.name = name
    this.killed.promise.catch(() => undefined)
    const routing = new HaRouting({
      server: this,
      serverId: () => name,
      coreState: () => this.coreState ?? (this.isOpen ? 'unsealed' : 'sealed'),
      state: () => '',
      usesAreLimited: () => cluster.usesAreLimited,
      answerHere: async () => undefined,
      takesLongBody: (token) => token === 'known',
      forward: (operation, call, to) => cluster.forward(operation, call, to),
      lasting: watchRequests,
    })
    this.operation = routing.routed(cluster.operationOf(this))
    this.save = routing.routed(cluster.saveOf(this))
    this.restore = routing.routed(cluster.restoreOf(this))
    this.write = routing.routed(cluster.writeOf(this))
  }

  onChange(listener: () => void): () => void {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  changed(): void {
    for (const listener of this.listeners) listener()
  }

  async acquireForInitialization(): Promise<void> {}
  async release(): Promise<void> {}
  async stepDownIfRequested(): Promise<void> {}
}

export class ScriptedCluster {
  readonly #members: readonly ScriptedMember[]
  readonly #waiters = new Set<() => void>()
  #newest = 0
  #term = 0
  isRevoked = false
  /** Of the callers' tokens. */
  usesAreLimited = false
  /** The members that served a request, in order. */
  readonly servedBy: string[] = []
  readonly cursors: string[] = []
  readonly waits: string[] = []
  /** Bodies of restores, with the member that has read them. */
  readonly restored: string[] = []

  constructor(names: readonly string[]) {
    this.#members = names.map((name) => new ScriptedMember(name, this))
  }

  member(name: string): ScriptedMember {
    const found = this.#members.find((member) => member.name === name)
    if (!found) throw new Error(`there is no member ${name}`)
    return found
  }

  activate(name: string): void {
    const term = ++this.#term
    const holder = {
      serverId: name,
      name,
      apiAddress: '',
      clusterAddress: '',
      activeSinceMs: 0,
      leaseMs: 0,
      term,
      clockMs: 0,
      isReleased: false,
    }
    for (const member of this.#members) {
      if (member.isKilled) continue
      member.lease = { holder, term: member.name === name ? term : 0 }
      if (member.name === name) [member.phase, member.isServing, member.isOpen] = ['active', true, true]
      member.changed()
    }
  }

  end(name: string, how: 'steps down' | 'is killed' | 'is sealed'): void {
    const member = this.member(name)
    if (how === 'is killed') {
      member.isKilled = true
      member.isServing = false
      member.killed.reject(new Refusal('no_answer', 'the server does not respond'))
      return
    }
    if (how === 'is sealed') {
      member.isOpen = false
      this.#wake()
      void sleep(10).then(() => this.#release(member))
      return
    }
    this.#release(member)
  }

  #release(member: ScriptedMember): void {
    ;[member.phase, member.isServing] = ['stepping down', false]
    member.changed()
    this.#wake()
    ;[member.phase, member.isOpen] = ['standby', true]
    member.closed++
    for (const each of this.#members) {
      if (each.lease.holder?.serverId === member.name) each.lease = { holder: undefined, term: 0 }
      each.changed()
    }
  }

  write(events: number): void {
    this.#newest += events
    this.#wake()
  }

  #wake(): void {
    for (const wake of this.#waiters) wake()
  }

  async forward(
    operation: AnyOperation,
    call: Call,
    { serverId, signal }: { readonly serverId: string; readonly signal: AbortSignal },
  ) {
    const to = this.member(serverId)
    if (to.isKilled) throw new Refusal('no_answer', 'the server does not respond')
    const gone = Promise.withResolvers<never>()
    gone.promise.catch(() => undefined)
    const onAbort = () => gone.reject(new Refusal('unavailable', 'the caller has disconnected'))
    signal.addEventListener('abort', onAbort)
    const link = new AbortController()
    to.killed.promise.catch(() => link.abort())
    const found =
      [to.operation, to.save, to.restore, to.write].find(({ name }) => name === operation.name) ?? to.operation
    const forwarded = { ...call, hops: call.hops + 1, signal: AbortSignal.any([signal, link.signal]) }
    const served = found.run(call.raw, forwarded, undefined)
    if (Symbol.asyncIterator in served || operation.takesStream) return served
    const answer = await Promise.race([served, to.killed.promise, gone.promise])
    if (answer instanceof StreamedAnswer) {
      const linked = through(answer.chunks, [to.killed.promise, gone.promise])
      return new StreamedAnswer(answer.headers, linked, answer.accessor)
    }
    if (answer instanceof WholeAnswer) return answer
    throw new Error('no answer')
  }

  operationOf(member: ScriptedMember): AnyOperation {
    return { ...ENDPOINT, name: 'secrets.read', output: 'answer', run: async (_raw, call) => this.#serve(member, call) }
  }

  saveOf({ name }: ScriptedMember): AnyOperation {
    async function* run(): AsyncGenerator<Chunk> {
      yield { status: 200 }
      yield Buffer.from('snapshot ')
      yield Buffer.from(`of ${name}`)
    }
    return { ...ENDPOINT, name: 'secrets.snapshot_save', output: 'stream', run }
  }

  restoreOf({ name }: ScriptedMember): AnyOperation {
    const run = async (_raw: unknown, { body }: Call) => {
      let text = ''
      for await (const chunk of body ?? []) text += Buffer.from(chunk).toString()
      this.restored.push(`${name}: ${text}`)
    }
    return { ...ENDPOINT, name: 'secrets.snapshot_restore', output: 'empty', takesStream: true, run }
  }

  writeOf(member: ScriptedMember): AnyOperation {
    return {
      ...ENDPOINT,
      name: 'secrets.write',
      output: 'answer',
      run: async (_raw, call) => this.#serve(member, call),
    }
  }

  async save(name: string): Promise<string> {
    const chunks = this.member(name).save.run(callOf().raw, callOf(), undefined)
    if (!(Symbol.asyncIterator in chunks)) throw new Error('no stream')
    let text = ''
    for await (const chunk of chunks) if (!isStreamHead(chunk)) text += Buffer.from(chunk).toString()
    return text
  }

  async restore(name: string, text: string): Promise<unknown> {
    async function* body(): AsyncGenerator<Uint8Array> {
      yield Buffer.from(text)
    }
    return this.member(name).restore.run(callOf().raw, { ...callOf(), body: body() }, undefined)
  }

  async #serve(member: ScriptedMember, { raw, signal }: Call): Promise<WholeAnswer | StreamedAnswer> {
    this.servedBy.push(member.name)
    const query = new Map(raw.query)
    const cursor = raw.headers['last_event_id'] ?? query.get('cursor') ?? `1-${this.#newest}`
    this.cursors.push(cursor)
    this.waits.push(query.get('wait') ?? '')
    if (!member.isOpen) return new WholeAnswer(503, {}, '{"errors":["Vault is sealed"]}')
    if (this.isRevoked) return new WholeAnswer(403, {}, '{"errors":["permission denied"]}')
    const { closed } = member
    const isClosed = () => !member.isOpen || member.closed !== closed
    const check = () => {
      if (isClosed()) throw sealed()
      if (this.isRevoked) throw new Rejection(403, 'permission denied')
    }
    if (query.get('stream') !== undefined || raw.headers['accept'] !== undefined) {
      return streamedAnswer(this.#events(isClosed, cursor, signal), { check, raw })
    }
    const from = sequenceOf(cursor)
    await this.#change(from, signal)
    const events = Array.from({ length: this.#newest - from }, (_, at) => from + at + 1)
    return new WholeAnswer(200, {}, JSON.stringify({ events }))
  }

  async *#events(isClosed: () => boolean, start: string, signal: AbortSignal): AsyncGenerator<StreamEvent[]> {
    yield [{ cursor: start }]
    for (let at = sequenceOf(start); ; ) {
      if (isClosed()) throw sealed()
      if (signal.aborted) return
      const events: StreamEvent[] = []
      while (at < this.#newest)
        events.push({ cursor: `1-${++at}`, value: { sequence: at, path: 'a "cursor":"1-99"\nid: 1-99\n' } })
      if (events.length > 0) yield events
      else await this.#change(at, signal)
    }
  }

  async #change(after: number, signal: AbortSignal): Promise<void> {
    if (this.#newest > after || signal.aborted) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#waiters.add(resolve)
    signal.addEventListener('abort', () => resolve())
    await promise
    this.#waiters.delete(resolve)
  }

  /** A request that is answered with the next events. Without a cursor it is a plain read, or a write. */
  async poll(name: string, query: Query = [], kind: 'operation' | 'write' = 'operation'): Promise<unknown> {
    const call = { ...callOf(), raw: inputOf(query, {}) }
    const answer = await this.member(name)[kind].run(call.raw, call, undefined)
    if (!(answer instanceof WholeAnswer)) return answer
    return { status: answer.status, ...(JSON.parse(String(answer.body)) as object) }
  }

  async watch(name: string, headers: RawInput['headers'] = {}, query: Query = []): Promise<StreamReader> {
    const gone = new AbortController()
    const asked = headers['accept'] === undefined ? ([['stream', 'true'], ...query] as const) : query
    const call = { ...callOf(), raw: inputOf(asked, headers), signal: gone.signal }
    const answer = await this.member(name).operation.run(call.raw, call, undefined)
    if (!(answer instanceof StreamedAnswer)) throw new Error('no stream')
    return new StreamReader(answer.chunks, gone)
  }
}

function inputOf(query: Query, headers: RawInput['headers']): RawInput {
  return { params: { path: 'kv/watch' }, query, headers, body: undefined }
}

function sequenceOf(cursor: string): number {
  return Number(/^1-(\d+)/.exec(cursor)?.[1])
}

/** Passes the chunks on until one of the promises rejects. */
async function* through(chunks: AsyncIterable<Uint8Array>, broken: readonly Promise<never>[]) {
  const iterator = chunks[Symbol.asyncIterator]()
  for (;;) {
    const { done, value } = await Promise.race([iterator.next(), ...broken])
    if (done) return
    yield value
  }
}

export class StreamReader {
  readonly #gone: AbortController
  #text = ''
  isEnded = false
  error: unknown

  constructor(chunks: AsyncIterable<Uint8Array>, gone: AbortController) {
    this.#gone = gone
    void this.#read(chunks)
  }

  async #read(chunks: AsyncIterable<Uint8Array>): Promise<void> {
    try {
      for await (const chunk of chunks) this.#text += Buffer.from(chunk).toString()
    } catch (error) {
      this.error = error
    }
    this.isEnded = true
  }

  text(): string {
    return this.#text
  }

  leave(): void {
    this.#gone.abort()
  }

  #values(): { readonly sequence?: number; readonly status?: number }[] {
    const lines = this.#text.split('\n').map((line) => (line.startsWith('data: ') ? line.slice(6) : line))
    return lines.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line) as object)
  }

  events(): { readonly sequence: number }[] {
    return this.#values().flatMap(({ sequence }) => (sequence === undefined ? [] : [{ sequence }]))
  }

  lastStatus(): number | undefined {
    return this.#values().at(-1)?.status
  }
}
