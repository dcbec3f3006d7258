/**
 * Copies of entries between members, over NATS, for a member that lacks trimmed messages of the commit stream, or whose entries differ. It is the
 * Merkle comparison of disaster recovery (`dr/secondary/merkle-sync.ts`): only entries that differ are copied. Entries are ciphertext.
 *
 * A request is one message to the subject of a member. Its response is a sequence of messages: the first byte says whether more follow, so a
 * response may be larger than one message. The caller requests a few entries at a time, which bounds what is in flight.
 */
import type { Msg, NatsConnection } from '@nats-io/transport-node'
import * as v from 'valibot'
import { messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { MerkleResponder } from '../../dr/primary/merkle-responder.ts'
import {
  METHODS,
  pack,
  packSmall,
  type RequestOf,
  type ResponseOf,
  unpack,
  unpackSmall,
} from '../../dr/link/messages.ts'
import { copyDifference, type CopyProgress, type MerkleSource } from '../../dr/secondary/merkle-sync.ts'
import { HaSubjects } from '../../cluster/nats/ha-subjects.ts'
import { packr, unpackAs } from '../../cluster/nats/message-pack.ts'
import type { StoreMemberState } from '../../storage/store/replica.ts'
import type { SqliteStore } from '../../storage/store/store.ts'
import { isReporting, type MemberState } from '../lease/lease.ts'
import { messageBytesMax } from '../stream/commit-stream.ts'

/** Timeout for the next message of a response. Before the first response, a tree of all entries may have to be built. */
const ANSWER_MS = 60_000
/** Entries of one request. */
const PATHS_AT_ONCE = 64
const [LAST, MORE, FAILED] = [0, 1, 2]
/** Length of a response, before its bytes. */
const LENGTH_BYTES = 4

type CopyMethod = 'Pages' | 'Subpages' | 'Leaves' | 'Ping'

const count = v.pipe(v.number(), v.integer(), v.minValue(0))
const octets = v.custom<Uint8Array>((value) => value instanceof Uint8Array)

const EMPTY = new Uint8Array()
const REQUEST = v.object({ method: v.string(), request: octets })

const STATE = v.object({
  position: v.object({ sequence: count, epoch: count, checksum: octets }),
  mark: v.object({ stream: v.string(), position: count }),
  role: v.picklist(['own', 'replica', 'fenced']),
  epoch: count,
  isCopying: v.boolean(),
  clusterId: v.string(),
  shared: v.array(v.object({ path: v.string(), value: octets })),
})

/** The member with the newest entries. Throws a Refusal if there is none. */
export function pickSource(members: readonly MemberState[], ownServerId: string, nowMs: number): MemberState {
  const [best] = members
    .filter((member) => member.serverId !== ownServerId && isReporting(member, nowMs))
    .toSorted(
      (one, other) => Number(other.state === 'active') - Number(one.state === 'active') || other.applied - one.applied,
    )
  if (best) return best
  throw new Refusal(
    'unavailable',
    'the commit stream begins after the entries of this server, and no other member is connected',
  )
}

export interface ServedCopies {
  readonly connection: NatsConnection
  readonly region: string
  readonly serverId: string
  readonly store: SqliteStore
  readonly logger: Logger
}

/** Responds to the requests of other members. */
export function serveCopies({ connection, logger, region, serverId, store }: ServedCopies): void {
  const responder = new MerkleResponder(store, { take: async () => undefined }, logger)
  const serve = async (message: Msg) => {
    try {
      for await (const { bytes, isLast } of withLast(answersTo(message.data, store, responder))) {
        send(connection, message, bytes, isLast)
      }
    } catch (error) {
      logger.warn('copy for another member failed', { error: messageOf(error) })
      message.respond(Buffer.concat([Buffer.from([FAILED]), Buffer.from(messageOf(error))]))
    }
  }
  connection.subscribe(new HaSubjects(region).copy(serverId), {
    callback(error, message) {
      if (!error) void serve(message)
    },
  })
}

/** Sends one response as messages that NATS carries. */
function send(connection: NatsConnection, message: Msg, bytes: Uint8Array, isLast: boolean): void {
  const size = messageBytesMax(connection)
  const whole = Buffer.alloc(LENGTH_BYTES + bytes.length)
  whole.writeUInt32BE(bytes.length)
  whole.set(bytes, LENGTH_BYTES)
  for (let at = 0; at < whole.length || at === 0; at += size) {
    const isEnd = at + size >= whole.length
    message.respond(Buffer.concat([Buffer.from([isEnd && isLast ? LAST : MORE]), whole.subarray(at, at + size)]))
  }
}

async function* withLast(answers: AsyncIterable<Uint8Array>): AsyncGenerator<{ bytes: Uint8Array; isLast: boolean }> {
  let held: Uint8Array | undefined
  for await (const bytes of answers) {
    if (held) yield { bytes: held, isLast: false }
    held = bytes
  }
  yield { bytes: held ?? new Uint8Array(), isLast: true }
}

async function* answersTo(
  payload: Uint8Array,
  store: SqliteStore,
  responder: MerkleResponder,
): AsyncGenerator<Uint8Array> {
  const { method, request } = unpackAs(REQUEST, payload) ?? { method: undefined, request: EMPTY }
  const body = Buffer.from(request)
  if (!store.tree.isEnabled) await store.tree.enable()
  if (method === 'State') yield pack(stateOf(store))
  else if (method === 'Pages') yield pack(await responder.pages())
  else if (method === 'Subpages') yield packSmall(await responder.subpages(unpack(METHODS.Subpages.request, body)))
  else if (method === 'Leaves') yield packSmall(await responder.leaves(unpack(METHODS.Leaves.request, body)))
  else if (method === 'Values') {
    for await (const answer of responder.values(unpack(METHODS.Values.request, body))) yield pack(answer)
  } else throw new Error('the request is malformed')
}

/** Throws an Error for a member that could not be a source. */
function stateOf(store: SqliteStore): StoreMemberState {
  const { state } = store.member
  if (!state) throw new Error('this member has not joined the commit stream, or is copying entries itself')
  return state
}

export interface MemberCopyOptions {
  readonly connection: Pick<NatsConnection, 'requestMany'>
  readonly region: string
  readonly source: MemberState
  readonly store: SqliteStore
  /** Identity of the commit stream. */
  readonly stream: string
  readonly signal: AbortSignal
}

/**
 * Resolves to the message of the stream at which the copy is complete. Rejects with errors of NATS and of the store; the copy is then resumed
 * by the next one.
 */
export async function copyFromMember(options: MemberCopyOptions): Promise<{ completeAt: number; entries: number }> {
  const { signal, source, store, stream } = options
  const member = new MemberSource(options)
  const from = await member.state()
  if (from.mark.stream !== stream) throw new Error(`the member ${source.name} has not joined the commit stream`)
  if (!store.tree.isEnabled) await store.tree.enable()
  const progress: CopyProgress = { found: 0, done: 0, bytes: 0 }
  const damaged: string[] = []
  await copyDifference({
    link: member,
    store: {
      tree: store.tree,
      beginCopy: () => store.member.beginCopy(from),
      copyEntries: (puts, deletes) => store.member.copyEntries(puts, deletes),
    },
    from: from.position,
    clusterId: from.clusterId,
    progress,
    answerMs: ANSWER_MS,
    signal,
    onDamaged: (paths) => damaged.push(...paths),
    onDifference: () => undefined,
  })
  if (damaged.length > 0) throw new Error(`${damaged.length} entries of the member ${source.name} are damaged`)
  const { mark } = await member.state()
  return { completeAt: mark.position, entries: progress.done }
}

/** The entries of another member. */
class MemberSource implements MerkleSource {
  readonly #options: MemberCopyOptions

  constructor(options: MemberCopyOptions) {
    this.#options = options
  }

  state(): Promise<StoreMemberState> {
    return this.#request('State', EMPTY, (bytes) => unpack(STATE, bytes))
  }

  async call<M extends CopyMethod>(method: M, request: RequestOf<M>): Promise<ResponseOf<M>> {
    if (method === 'Ping') {
      const { epoch, position } = await this.state()
      return { position, epoch, setId: '' } as ResponseOf<M>
    }
    return this.#request(
      method,
      pack(request),
      (bytes) => unpackSmall(METHODS[method].response, bytes) as ResponseOf<M>,
    )
  }

  async #request<T>(method: string, request: Uint8Array, parse: (bytes: Buffer) => T): Promise<T> {
    for await (const bytes of this.#answers(method, request)) return parse(bytes)
    throw new Error(`the member ${this.#options.source.name} did not answer`)
  }

  values({ paths }: RequestOf<'Values'>): AsyncIterable<ResponseOf<'Values'>> & { cancel(): void } {
    const cancelled = new AbortController()
    const read = async function* (source: MemberSource) {
      for (let at = 0; at < paths.length && !cancelled.signal.aborted; at += PATHS_AT_ONCE) {
        const request = pack({ paths: paths.slice(at, at + PATHS_AT_ONCE) })
        for await (const bytes of source.#answers('Values', request)) yield unpack(METHODS.Values.response, bytes)
      }
    }
    return { [Symbol.asyncIterator]: () => read(this), cancel: () => cancelled.abort() }
  }

  /** The responses to one request, each put together from its messages. */
  async *#answers(method: string, request: Uint8Array): AsyncGenerator<Buffer> {
    const { connection, region, signal, source } = this.#options
    const payload = packr.pack({ method, request })
    const messages = await connection.requestMany(new HaSubjects(region).copy(source.serverId), payload, {
      strategy: 'sentinel',
      maxWait: ANSWER_MS,
    })
    let parts: Buffer[] = []
    let [expected, bytes] = [-1, 0]
    for await (const message of messages) {
      signal.throwIfAborted()
      const [kind] = message.data
      let rest = Buffer.from(message.data.subarray(1))
      if (kind === FAILED) throw new Error(`the member ${source.name} refused the copy: ${rest.toString()}`)
      if (expected < 0) {
        expected = rest.readUInt32BE()
        rest = rest.subarray(LENGTH_BYTES)
      }
      parts.push(rest)
      bytes += rest.length
      if (bytes >= expected) {
        yield Buffer.concat(parts)
        parts = []
        ;[expected, bytes] = [-1, 0]
      }
      if (kind === LAST) return
    }
    throw new Error(`the member ${source.name} stopped answering`)
  }
}
