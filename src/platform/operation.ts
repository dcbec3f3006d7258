/**
 * Endpoints and operations: theory of operation of the platform.
 *
 * An *endpoint* is data: everything that a transport needs to know (routes, input schema, permission, form of the answer,
 * limits). A *handler* does the work; `handle` joins both in the module that can run it, as one value in that module's table.
 * Both together are an *operation*. HTTP serves operations directly; a server that forwards calls needs the endpoints only, and
 * the host finds the same one. Routing, authorization at every hop, metric labels, access log, OpenAPI and error format
 * follow from the endpoint, so a new endpoint is one value and one line in a table.
 *
 * Promises. Every transport calls `invoke`, so a call is parsed, authenticated and authorized in one way. The target of a call is
 * looked up once (`find`), before authorization, and passed to `authorize` and `run`.
 *
 * Streams. A streaming operation returns an async iterable. Its first chunk is a `StreamHead`; until it was yielded, a thrown
 * `Refusal` is a status code. The bytes of a chunk stay valid until the second chunk after it is requested: a consumer writes one
 * chunk while the next one is prepared, and two reused buffers carry any amount of data. A consumer that keeps bytes longer
 * copies them.
 *
 * Failure modes. What a handler throws before the first byte becomes a status (`errors.ts`); after it, the transport breaks the answer.
 */
import { Refusal } from './errors.ts'
import { isUuid, type RawInput, type Schema } from './schema.ts'

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH' | 'LIST' | 'SCAN'

/** `*` serves any verb, as the fs and gc endpoints of the compatible system do. */
export type Route = `${Method | '*'} /${string}`

/** A segment of a path: declared by an endpoint, or a name from the caller. */
export interface PathPart {
  readonly text: string
  readonly isName: boolean
  /** Never logged: the caller may have put a credential there. */
  readonly isSecret?: boolean
}

/** Capabilities of a namespace. The index of one is its bit on the wire: append only. */
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

/** A caller and its permissions. Resolved from the token at every hop; never contains the token. */
export interface Identity {
  /** Accessor of the token, for the access log. */
  readonly accessor: string
  allowsNode(access: Access): boolean
  allowsAgent(access: Access): boolean
  allowsNamespace(namespace: string, capability: NamespaceCapability): boolean
}

/** Permissions of a token, as a server sends them to an agent. */
export interface Grants {
  /** Accessor of the token. */
  readonly accessor: string
  /** Grants everything. */
  readonly management: boolean
  /** Policy documents, HCL or JSON. */
  readonly policies: readonly string[]
  /** Time until the token or one of its policies expires. Absent: never. */
  readonly expiresInMs?: number
  /** True for a token with a limited number of uses: valid for one call only. */
  readonly isUseLimited?: boolean
}

/** A caller without any permission. Operations that check the token themselves receive it. */
export const ANONYMOUS: Identity = {
  accessor: '',
  allowsNode: () => false,
  allowsAgent: () => false,
  allowsNamespace: () => false,
}

/** A call, as a handler receives it. */
export interface Call {
  readonly requestId: string
  readonly identity: Identity
  /** Aborts when the caller has disconnected, the deadline has passed, or the process stops. */
  readonly signal: AbortSignal
  /**
   * Aborts when a process on the path of the call stops: a blocking query then answers at once, as after its timeout. Absent
   * where nothing reports it.
   */
  readonly draining?: AbortSignal | undefined
  /** Unparsed input and token, for forwarding only. Never log either. */
  readonly raw: RawInput
  readonly token: string | undefined
  /** Number of processes that forwarded the call. */
  readonly hops: number
  /** The unbuffered body, for an operation with `takesStream`; absent without a body. */
  readonly body?: AsyncIterable<Uint8Array>
  /** Client address as the first process saw it; IPv4 without the IPv6 prefix. Only as trustworthy as that process. */
  readonly remote?: string | undefined
}

/** Where an operation with the target `node` runs. Without a node ID: on the node that received the call. */
export type CallTarget = { readonly allocationId: string } | { readonly nodeId: string | undefined }

/** The refusal for an unknown allocation, the same in every process. */
export function unknownAllocation(id: string): Refusal {
  if (id === '') return new Refusal('invalid_request', 'must provide a valid alloc id')
  if (isUuid(id)) return new Refusal('not_found', `Unknown allocation "${id}"`)
  const text = `alloc lookup failed: ${shownId(id)} is not a full allocation ID, use all 36 characters of the UUID`
  return new Refusal('invalid_request', text)
}

/** The refusal for an unknown node. */
export function unknownNode(id: string): Refusal {
  if (isUuid(id)) return new Refusal('not_found', `Unknown node ${id}`)
  const text = `node lookup failed: ${shownId(id)} is not a full node ID, use all 36 characters of the UUID`
  return new Refusal('invalid_request', text)
}

function shownId(id: string): string {
  return JSON.stringify(id.length > 64 ? `${id.slice(0, 61)}...` : id)
}

/** A value that is JSON text already, with additional headers. */
export class JsonText {
  readonly text: string
  readonly headers: Readonly<Record<string, string>>

  constructor(text: string, headers: Readonly<Record<string, string>> = {}) {
    this.text = text
    this.headers = headers
  }
}

/** A complete answer. It may contain secrets, so it is never compressed (BREACH). */
export class WholeAnswer {
  readonly status: number
  /** Without Content-Length, which the transport sets. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | Uint8Array | undefined
  /** Accessor of the token, for the access log. */
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

/** An answer with status 200 whose body is produced while the caller reads it. */
export class StreamedAnswer {
  readonly headers: Readonly<Record<string, string>>
  /** Requested one by one; ended early when the caller disconnects. Chunks stay valid as long as those of a stream. */
  readonly chunks: AsyncIterable<Uint8Array>
  /** Accessor of the token, for the access log. */
  readonly accessor: string | undefined

  constructor(headers: Readonly<Record<string, string>>, chunks: AsyncIterable<Uint8Array>, accessor?: string) {
    this.headers = headers
    this.chunks = chunks
    this.accessor = accessor
  }
}

/** Status and headers of a stream. */
export interface StreamHead {
  readonly status: 200 | 206
  readonly contentType?: string
  /** Exact number of bytes of the body, if known. */
  readonly contentLength?: number
  readonly headers?: Readonly<Record<string, string>>
  /** True if each chunk consists of complete frames (stream-frame.ts); over WebSocket each chunk is a message. */
  readonly frames?: boolean
}

export type Chunk = StreamHead | Uint8Array

/** A JSON Schema document. */
export type JsonSchema = Readonly<Record<string, unknown>>

/** Shorthands for JSON Schema documents. */
export const TEXT: JsonSchema = { type: 'string' }
export const FLAG: JsonSchema = { type: 'boolean' }
export const COUNT: JsonSchema = { type: 'integer' }
export const NUMBER: JsonSchema = { type: 'number' }

/** An object with exactly these properties, all required. */
export function record(properties: Readonly<Record<string, JsonSchema>>): JsonSchema {
  return { type: 'object', properties, required: Object.keys(properties) }
}

/** An object with any names. */
export function map(values: JsonSchema): JsonSchema {
  return { type: 'object', additionalProperties: values }
}

export function orNull(schema: JsonSchema): JsonSchema {
  return { anyOf: [schema, { type: 'null' }] }
}

export function listOf(items: JsonSchema): JsonSchema {
  return { type: 'array', items }
}

/** Declaration of an endpoint. `About` is the target of a call, which its handler looks up. */
export interface Endpoint<In, About = unknown> {
  /** Dotted name in access log, metric labels, OpenAPI, and between processes. */
  readonly name: string
  readonly summary: string
  /** Routes below `/v1`; the router serves them without the prefix as well. */
  readonly http: readonly Route[]
  /** `node` runs on the host that owns the node or the allocation; `server` runs on the process that received it. */
  readonly target: 'node' | 'server'
  readonly input: Schema<In>
  /**
   * Form of the answer: a JSON value, empty, a byte stream, or a `WholeAnswer` or `StreamedAnswer` from the handler.
   */
  readonly output: 'json' | 'empty' | 'stream' | 'answer'
  /** Schema of the JSON value, for the OpenAPI document. */
  readonly result?: JsonSchema
  /** Status of an empty answer. Default 200, which stock clients require. */
  readonly emptyStatus?: 204
  /** Content type of a JSON answer. `text/plain` becomes `application/json` if the Accept header requests it. */
  readonly produces?: 'application/json' | 'text/plain'
  /** `plain` errors are text, `errors` are `{"errors":[...]}`. */
  readonly errorFormat: 'plain' | 'errors'
  /**
   * Verbs allowed for pages of other origins; `configured`: decided by a setting. Absent: none.
   */
  readonly crossOrigin?: readonly ('GET' | 'HEAD')[] | 'configured'
  /** True if the endpoint needs no token: a token is ignored, so an expired one causes no error. */
  readonly open?: boolean
  /** True if the handler resolves `call.token` itself; `call.identity` then has no permissions. */
  readonly ownToken?: boolean
  /** False if HEAD is not allowed where GET is. Default true. */
  readonly head?: boolean
  /** True if GET changes state: HEAD and requests of pages of other origins are refused. */
  readonly changesOnGet?: true
  /** True if the handler reads the body as a stream (`call.body`) of any length. */
  readonly takesStream?: boolean
  /** Largest body in bytes; 0 or absent: a body is read and discarded. */
  readonly bodyBytesMax?: number
  /** Error text for a larger body, where stock clients expect a certain one. */
  readonly bodyTooLarge?: string
  /** True if the answer has no end. It breaks when the process stops. */
  endless?(input: In): boolean
  /** True for a blocking query. It is answered at once when the process stops (`Call.draining`). */
  longPoll?(input: In): boolean
  /** The node, if the target is `node`. Absent or undefined: the process that received the call. */
  locate?(input: In): CallTarget | undefined
  /** Throws a Refusal if the identity lacks the permission. Called at every hop. */
  authorize(input: In, identity: Identity, about: About): void
}

/** Runs an endpoint. */
export interface Handler<In, Out, About = unknown> {
  /** Looks up the target of a call, once, before authorization. Throws a Refusal if it does not exist. */
  find?(input: In): About
  /**
   * Called before a body is read beyond the size that is allowed without a token, for an operation with `ownToken`. False leaves the
   * body unread (`RawInput.isBodyLeft`), because the caller has no permission at all.
   */
  takesLongBody?(token: string | undefined, remote: string | undefined): boolean
  run(input: In, call: Call, about: About): Promise<Out> | AsyncIterable<Chunk>
}

/** An endpoint with its handler. */
export interface Operation<In, Out, About = unknown> extends Endpoint<In, About>, Handler<In, Out, About> {}

/** For tables and transports, which do not depend on the types. */
export type AnyEndpoint = Endpoint<unknown>
export type AnyOperation = Operation<unknown, unknown>

/** An endpoint and the constructor of its handler. `Deps` are the services of the module that runs it. */
export interface EndpointBinding<Deps> {
  readonly endpoint: AnyEndpoint
  /** The operation, with these services. */
  in(deps: Deps): AnyOperation
}

/** Declares an endpoint. `bind` creates its handler, once for each set of services. */
export function handle<Deps, In, Out, About, Found extends About>(
  endpoint: Endpoint<In, About>,
  bind: (deps: Deps) => Handler<In, Out, Found>,
): EndpointBinding<Deps> {
  return {
    endpoint,
    in(deps) {
      const operation: Operation<In, Out, Found> = { ...endpoint, ...bind(deps) }
      return operation
    },
  }
}

/** Looks up the target of a call and authorizes the caller. Throws a Refusal. */
export function admit(operation: AnyOperation, input: unknown, identity: Identity): unknown {
  const about = operation.find?.(input)
  operation.authorize(input, identity, about)
  return about
}

/** An answer in progress whose caller's permissions are checked again. */
export interface PermissionHolder {
  /** Authorizes the current identity. Throws a Refusal if it has lost the permission. */
  renew(identity: Identity): void
  /** Ends the answer. The last call. */
  end(refusal: Refusal): void
}

/** Checks the permissions of callers periodically while their answers are in progress. */
export interface PermissionWatcher {
  /** Starts to check this caller; returns the function that stops it. */
  keep(token: string | undefined, remote: string | undefined, holder: PermissionHolder): () => void
  /** The same for an answer that has an end: no cost if it ends soon. */
  keepLong(token: string | undefined, remote: string | undefined, holder: PermissionHolder): () => void
}

/** Resolves callers. */
export interface Callers {
  /** Resolves a token. Throws a Refusal for an unknown token. */
  resolve(token: string | undefined, remote: string | undefined): Identity | Promise<Identity>
  /** Absent if permissions cannot be checked again. */
  readonly rights?: PermissionWatcher | undefined
}

/** A call before authentication: `invoke` sets `identity`. */
export interface IncomingCall extends Call {
  identity: Identity
}

/** Writes the answer of one call to its transport. */
export interface CallResponder {
  /**
   * The caller is authorized; nothing was executed yet. Throws a Refusal if the process stops and the answer has no end. A long poll
   * counts as an answer without an end.
   */
  admitted(isEndless: boolean, isLongPoll: boolean): void
  value(value: unknown): Promise<void>
  stream(chunks: AsyncIterable<Chunk>): Promise<void>
  /** The caller lost its permission: break the answer in progress. */
  rightsLost(refusal: Refusal): void
}

/**
 * Runs one call of any transport: parse, authenticate, authorize, run, answer. `asserted` is the identity that a server asserts. Rejects
 * with what was thrown; the transport breaks an answer that has started.
 */
export async function invoke(
  operation: AnyOperation,
  call: IncomingCall,
  responder: CallResponder,
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
  responder.admitted(isEndless, isLongPoll)
  const rights = asserted || operation.ownToken ? undefined : callers.rights
  let leave = isEndless ? watchPermission(operation, { input, call }, responder, rights) : undefined
  try {
    const result = operation.run(input, call, about)
    if (Symbol.asyncIterator in result) {
      // An answer with an end lasts as long as a slow reader makes it last.
      leave ??= watchPermission(operation, { input, call, found: { about } }, responder, rights)
      await responder.stream(result)
    } else await responder.value(await result)
  } finally {
    leave?.()
  }
}

/**
 * Checks the caller's permissions while an answer is in progress, and breaks the answer when they are lost. An answer with an end keeps the
 * target that was `found` at its start.
 */
function watchPermission(
  operation: AnyOperation,
  { call, found, input }: { input: unknown; call: IncomingCall; found?: { readonly about: unknown } },
  responder: CallResponder,
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
      responder.rightsLost(refusal)
    },
  }
  const { remote, token } = call
  const leave = found ? rights?.keepLong(token, remote, holder) : rights?.keep(token, remote, holder)
  return leave
}

export function isStreamHead(chunk: Chunk): chunk is StreamHead {
  return !(chunk instanceof Uint8Array)
}
