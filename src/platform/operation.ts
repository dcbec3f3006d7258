/**
 * Endpoints and what runs them.
 *
 * An *endpoint* is data: everything a transport needs to know about it (its routes, how its input is parsed, who may call
 * it, what it gives, within which limits), and nothing of what it does. Its *handler* does it, and is bound in the room that
 * can: `handle` joins the two, as one value that the room's table lists. Both together are an *operation*, which HTTP
 * serves directly. A server that hands calls on needs the endpoints alone, and the host looks up the very same one. Routing,
 * permission at every hop, the metric label, the access log line, OpenAPI and the error format all follow from the endpoint,
 * so adding one is one value and one line in its room's table.
 *
 * Every transport calls through `invoke`, so that a call is parsed, its caller identified and authorised in one way. What it
 * is about is looked up once (`find`), before permission is asked for, and is handed to the permission and to the handler.
 *
 * A streaming operation returns an async iterable. Its first chunk is a `StreamHead`; until it has been yielded, a
 * thrown `Refusal` is still a status. The bytes of a chunk stay valid until the second chunk after it is asked for: a
 * consumer writes one chunk while the next is being made, and two reused buffers carry any amount of data. A consumer that
 * keeps bytes longer must copy them.
 */
import { Refusal } from './errors.ts'
import { isUuid, type RawInput, type Schema } from './schema.ts'

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH' | 'LIST' | 'SCAN'

/** `*` serves any verb, as the fs and gc endpoints of the compatible system do. */
export type Route = `${Method | '*'} /${string}`

/** A piece of a path: a word that an endpoint declares, or a name that a caller gives. */
export interface PathPart {
  readonly text: string
  readonly isName: boolean
  /** A name that no log shows: a caller may have put in there what opens something. */
  readonly isSecret?: boolean
}

/** What may be done in a namespace, as operations ask for it. The place of one is its bit on the wire: append only. */
export const NAMESPACE_CAPABILITIES = [
  'list-jobs',
  'read-job',
  'submit-job',
  'read-logs',
  'read-fs',
  'alloc-lifecycle',
  'gc-allocation',
] as const

export type NamespaceCapability = (typeof NAMESPACE_CAPABILITIES)[number]

export type Access = 'read' | 'write'

/** Who is calling and what they may do. Made from a token at every hop; never holds the token. */
export interface Identity {
  /** Public name of the token for the access log: never the token itself. */
  readonly accessor: string
  allowsNode(access: Access): boolean
  allowsAgent(access: Access): boolean
  allowsNamespace(namespace: string, capability: NamespaceCapability): boolean
}

/** What a token may do, as one process tells another. */
export interface Grants {
  /** Public name of the token. */
  readonly accessor: string
  /** It may do everything. */
  readonly management: boolean
  /** Texts of its policies, HCL or JSON. */
  readonly policies: readonly string[]
  /** Milliseconds until the token, or one of its policies, expires. Absent: it does not expire. */
  readonly expiresInMs?: number
  /** True for a token with a limited number of uses: these grants are good for one call. */
  readonly isUseLimited?: boolean
}

/** Nobody, who may nothing: whom an operation sees that looks at the token itself. */
export const NOBODY: Identity = {
  accessor: '',
  allowsNode: () => false,
  allowsAgent: () => false,
  allowsNamespace: () => false,
}

/** One call as an operation sees it. */
export interface Call {
  readonly requestId: string
  readonly identity: Identity
  /** Aborts when the caller is gone, the deadline has passed or the process is stopping. */
  readonly signal: AbortSignal
  /**
   * Aborts when a process on the way of the call stops: a call that waits for a change answers at once, as when its time
   * has passed. Absent where nothing reports it.
   */
  readonly draining?: AbortSignal | undefined
  /** What the input was parsed from and the token that came along, for the next process only. Never log either. */
  readonly raw: RawInput
  readonly token: string | undefined
  /** How many processes have handed the call on. */
  readonly hops: number
  /** The body as it comes, for an operation that takes a stream; absent where there is none. */
  readonly body?: AsyncIterable<Uint8Array>
  /** Address that the request came from, IPv4 in its own form; as the first process saw it, so only as true as the processes are. */
  readonly remote?: string | undefined
}

/** Where an operation with the target `node` runs. No node ID: on the node that the call has reached. */
export type Place = { readonly allocationId: string } | { readonly nodeId: string | undefined }

/** What is said of an allocation that is not known: the same words wherever a call for it arrives. */
export function unknownAllocation(id: string): Refusal {
  if (id === '') return new Refusal('invalid_request', 'must provide a valid alloc id')
  if (isUuid(id)) return new Refusal('not_found', `Unknown allocation "${id}"`)
  const text = `alloc lookup failed: ${shownId(id)} is not a full allocation ID, give all 36 characters of the UUID`
  return new Refusal('invalid_request', text)
}

/** The same of a node. */
export function unknownNode(id: string): Refusal {
  if (isUuid(id)) return new Refusal('not_found', `Unknown node ${id}`)
  const text = `node lookup failed: ${shownId(id)} is not a full node ID, give all 36 characters of the UUID`
  return new Refusal('invalid_request', text)
}

function shownId(id: string): string {
  return JSON.stringify(id.length > 64 ? `${id.slice(0, 61)}...` : id)
}

/** A value that is JSON text already, with headers of its own where it needs some. */
export class JsonText {
  readonly text: string
  readonly headers: Readonly<Record<string, string>>

  constructor(text: string, headers: Readonly<Record<string, string>> = {}) {
    this.text = text
    this.headers = headers
  }
}

/** An answer that its operation has made whole: it is written as it is, never compressed, because it may hold secrets. */
export class WholeAnswer {
  readonly status: number
  /** Without Content-Length, which the transport adds. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | Uint8Array | undefined
  /** Public name of the token that was used, for the access log. */
  readonly accessor: string | undefined

  constructor(
    status: number,
    headers: Readonly<Record<string, string>>,
    body: string | Uint8Array | undefined,
    accessor?: string,
  ) {
    this.status = status
    this.headers = headers
    this.body = body
    this.accessor = accessor
  }
}

/** An answer with status 200 that its operation goes on with for as long as the caller likes, once it knows that there is one. */
export class StreamedAnswer {
  readonly headers: Readonly<Record<string, string>>
  /** Taken one by one as the caller takes them; ended early when it leaves. Each stays valid as those of a stream do. */
  readonly chunks: AsyncIterable<Uint8Array>
  /** As that of a `WholeAnswer`. */
  readonly accessor: string | undefined

  constructor(headers: Readonly<Record<string, string>>, chunks: AsyncIterable<Uint8Array>, accessor?: string) {
    this.headers = headers
    this.chunks = chunks
    this.accessor = accessor
  }
}

/** What precedes the bytes of a stream. */
export interface StreamHead {
  readonly status: 200 | 206
  readonly contentType?: string
  /** Exact number of bytes that will follow, when it is known. */
  readonly contentLength?: number
  readonly headers?: Readonly<Record<string, string>>
  /** True when the bytes are frames (platform/frame.ts), each chunk whole ones: where there are messages, each is one. */
  readonly frames?: boolean
}

export type Chunk = StreamHead | Uint8Array

/** A schema in the words of JSON Schema, as data. */
export type JsonSchema = Readonly<Record<string, unknown>>

/** What transports, other processes and documents need to know. `About` is what a call is about, looked up by its handler. */
export interface Endpoint<In, About = unknown> {
  /** Dotted name: access log, metric label, wire name between processes, audit. */
  readonly name: string
  readonly summary: string
  /** Each under `/v1`; the router serves it bare as well. */
  readonly http: readonly Route[]
  /** `node` runs on the host that owns the node or the allocation; `server` runs where it lands. */
  readonly target: 'node' | 'server'
  readonly input: Schema<In>
  /**
   * What the caller gets: a JSON value, nothing at all, bytes, or what its handler resolves with as a `WholeAnswer` or a
   * `StreamedAnswer`.
   */
  readonly output: 'json' | 'empty' | 'stream' | 'answer'
  /** What the JSON value looks like, for the OpenAPI document; absent means that it is not told. */
  readonly result?: JsonSchema
  /** Status of an answer that is nothing at all. Default 200, which is what stock clients take for success. */
  readonly emptyStatus?: 204
  /** Content type of a JSON answer, also of one that is streamed; `text/plain` still becomes JSON for a caller whose Accept asks for it. */
  readonly produces?: 'application/json' | 'text/plain'
  /** `plain` errors are text, `errors` are `{"errors":[...]}`. */
  readonly errorFormat: 'plain' | 'errors'
  /**
   * Verbs a browser of another origin may use; `configured` where a setting says what it may do. Absent means that the
   * endpoint is not offered to other origins.
   */
  readonly crossOrigin?: readonly ('GET' | 'HEAD')[] | 'configured'
  /** True when it answers everybody alike: a token that comes along is not looked at, so a stale one is no obstacle. */
  readonly open?: boolean
  /** True when it finds out itself whose the token is (`call.token`); the transport then says that it is nobody's. */
  readonly ownToken?: boolean
  /** False for an endpoint whose GET must not answer HEAD. Default true. */
  readonly head?: boolean
  /** True when GET changes something: HEAD is refused then, and so is a GET from a web page of another origin. */
  readonly changesOnGet?: true
  /** True when it takes the body's bytes as they come (`call.body`), however many, instead of a text. */
  readonly takesStream?: boolean
  /** Largest body in bytes; 0 or absent means that a body is read and thrown away. */
  readonly bodyBytesMax?: number
  /** What is said of a larger one, where stock clients know a text of their own. */
  readonly bodyTooLarge?: string
  /** True when it may stay open as long as the caller likes. It breaks when the process stops. */
  endless?(input: In): boolean
  /** True when it waits for a change and then ends. It is answered at once when the process stops (`Call.draining`). */
  longPoll?(input: In): boolean
  /** Which node's it is, where the target is `node`. Absent or undefined: of the process that the call has reached. */
  locate?(input: In): Place | undefined
  /** Throws a Refusal. Called at every hop, with what that hop knows. */
  authorize(input: In, identity: Identity, about: About): void
}

/** What runs an endpoint, in the room that can. */
export interface Handler<In, Out, About = unknown> {
  /** Looks up what a call is about, once and before permission is asked for. Throws a Refusal for what is not there. */
  find?(input: In): About
  /**
   * Asked before more of a body is read than anybody may send (`http/large-bodies`), where the operation looks at the token itself:
   * false leaves the body unread (`RawInput.isBodyLeft`), because this caller has no right to anything.
   */
  takesLongBody?(token: string | undefined, remote: string | undefined): boolean
  run(input: In, call: Call, about: About): Promise<Out> | AsyncIterable<Chunk>
}

/** An endpoint with what runs it. */
export interface Operation<In, Out, About = unknown> extends Endpoint<In, About>, Handler<In, Out, About> {}

/** Those whose types are of no matter: what tables and transports hold. */
export type AnyEndpoint = Endpoint<unknown>
export type AnyOperation = Operation<unknown, unknown>

/** An endpoint of a room, with what its handler is made of there. */
export interface RoomEndpoint<Room> {
  readonly endpoint: AnyEndpoint
  /** The endpoint as the room runs it. */
  in(room: Room): AnyOperation
}

/** The one value of an endpoint. `bind` makes its handler, once in the life of a room. */
export function handle<Room, In, Out, About, Found extends About>(
  endpoint: Endpoint<In, About>,
  bind: (room: Room) => Handler<In, Out, Found>,
): RoomEndpoint<Room> {
  return {
    endpoint,
    in(room) {
      const operation: Operation<In, Out, Found> = { ...endpoint, ...bind(room) }
      return operation
    },
  }
}

/** Looks up what a call is about and asks whether its caller may make it. Throws a Refusal. */
export function admit(operation: AnyOperation, input: unknown, identity: Identity): unknown {
  const about = operation.find?.(input)
  operation.authorize(input, identity, about)
  return about
}

/** An answer under way, as what checks its caller again knows it. */
export interface PermissionHolder {
  /** Judges its caller with the present identity. Throws a Refusal when it has no right to the answer any more. */
  renew(identity: Identity): void
  /** Ends the answer. It is not called again after this. */
  end(refusal: Refusal): void
}

/** What checks callers again while their answers last. */
export interface PermissionWatcher {
  /** Checks this caller from now on; returns how to stop. */
  keep(token: string | undefined, remote: string | undefined, holder: PermissionHolder): () => void
  /** The same for an answer that has an end: as often once it lasts, at next to no cost where it is over at once. */
  keepLong(token: string | undefined, remote: string | undefined, holder: PermissionHolder): () => void
}

/** Who is calling. */
export interface Callers {
  /** Who a token names. Throws a Refusal when it names nobody. */
  resolve(token: string | undefined, remote: string | undefined): Identity | Promise<Identity>
  /** Absent where the caller cannot be judged again. */
  readonly rights?: PermissionWatcher | undefined
}

/** A call before it is known who makes it: `identity` is set by `invoke`. */
export interface IncomingCall extends Call {
  identity: Identity
}

/** How a transport answers one call. */
export interface CallResponder {
  /**
   * The caller is authorised; nothing was done yet. Throws a Refusal when nothing endless may begin any more. A long poll
   * lasts as endless answers do.
   */
  admitted(isEndless: boolean, isLongPoll: boolean): void
  value(value: unknown): Promise<void>
  stream(chunks: AsyncIterable<Chunk>): Promise<void>
  /** The caller has lost its right to an answer that is under way, which must break. */
  rightsLost(refusal: Refusal): void
}

/**
 * One call, whichever way it came: parse, identify, authorise, run, answer. `asserted` is who calls where a server has
 * vouched for it. Rejects with what was thrown; what has begun by then is the transport's to break.
 */
export async function invoke(
  operation: AnyOperation,
  call: IncomingCall,
  answering: CallResponder,
  callers: Callers,
  asserted?: Identity,
): Promise<void> {
  const input = operation.input.parse(call.raw)
  if (asserted) call.identity = asserted
  else if (!operation.ownToken) {
    const found = callers.resolve(operation.open ? undefined : call.token, call.remote)
    call.identity = found instanceof Promise ? await found : found
  }
  const about = admit(operation, input, call.identity)
  const isLongPoll = operation.longPoll?.(input) ?? false
  const isEndless = isLongPoll || (operation.endless?.(input) ?? false)
  answering.admitted(isEndless, isLongPoll)
  const rights = asserted || operation.ownToken ? undefined : callers.rights
  let leave = isEndless ? keepRights(operation, { input, call }, answering, rights) : undefined
  try {
    const result = operation.run(input, call, about)
    if (Symbol.asyncIterator in result) {
      // What has an end lasts as long as its caller reads slowly.
      leave ??= keepRights(operation, { input, call, found: { about } }, answering, rights)
      await answering.stream(result)
    } else await answering.value(await result)
  } finally {
    leave?.()
  }
}

/**
 * While an answer lasts, its caller is judged again, and the answer breaks once its rights are gone. One with an end is about what
 * was `found` when it began, whatever has become of that.
 */
function keepRights(
  operation: AnyOperation,
  { call, found, input }: { input: unknown; call: IncomingCall; found?: { readonly about: unknown } },
  answering: CallResponder,
  rights: PermissionWatcher | undefined,
): (() => void) | undefined {
  const holder: PermissionHolder = {
    renew(identity) {
      if (found) operation.authorize(input, identity, found.about)
      else admit(operation, input, identity)
      call.identity = identity
    },
    end(refusal) {
      leave?.()
      answering.rightsLost(refusal)
    },
  }
  const { remote, token } = call
  const leave = found ? rights?.keepLong(token, remote, holder) : rights?.keep(token, remote, holder)
  return leave
}

export function isStreamHead(chunk: Chunk): chunk is StreamHead {
  return !(chunk instanceof Uint8Array)
}
