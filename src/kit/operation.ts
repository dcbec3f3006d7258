/**
 * An operation: one endpoint as one value.
 *
 * Everything a transport needs to know about an endpoint is in this value: its routes, how its input is parsed, who may
 * call it, what it does. HTTP serves it directly; a server forwards it to the host that `target` names and the host
 * looks up the very same value. Routing, permission at every hop, the metric label, the access log line, OpenAPI and
 * the error format all follow from it, so adding an endpoint is one value and one line in its room's table.
 *
 * A streaming operation returns an async iterable. Its first chunk is a `StreamHead`; until it has been yielded, a
 * thrown `Refusal` is still a status. The bytes of a chunk stay valid until the second chunk after it is asked for: a
 * consumer writes one chunk while the next is being made, and two reused buffers carry any amount of data. Whoever
 * keeps bytes longer must copy them.
 */
import type { RawInput, Schema } from './schema.ts'

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH' | 'LIST' | 'SCAN'

/** `*` serves any verb, as the fs and gc endpoints of the compatible system do. */
export type Route = `${Method | '*'} /${string}`

/** A piece of a path: a word that an endpoint declares, or a name that a caller gives. */
export interface PathPart {
  readonly text: string
  readonly isName: boolean
}

export type NamespaceCapability =
  | 'list-jobs'
  | 'read-job'
  | 'submit-job'
  | 'read-logs'
  | 'read-fs'
  | 'alloc-lifecycle'
  | 'gc-allocation'

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
  /** True when the bytes are frames (kit/frame.ts), each chunk whole ones: where there are messages, each is one. */
  readonly frames?: boolean
}

export type Chunk = StreamHead | Uint8Array

/** A schema in the words of JSON Schema, as data. */
export type JsonSchema = Readonly<Record<string, unknown>>

export interface Operation<In, Out> {
  /** Dotted name: access log, metric label, wire name between processes, audit. */
  readonly name: string
  readonly summary: string
  /** Each under `/v1`; the router serves it bare as well. */
  readonly http: readonly Route[]
  /** `node` runs on the host that owns the node or the allocation; `server` runs where it lands. */
  readonly target: 'node' | 'server'
  readonly input: Schema<In>
  /**
   * What the caller gets: a JSON value, nothing at all, bytes, or what `run` resolves with as a `WholeAnswer` or a
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
  /** Verbs a browser of another origin may use; absent means the endpoint is not offered to other origins. */
  readonly crossOrigin?: readonly ('GET' | 'HEAD')[]
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
  /** True when it may stay open as long as the caller likes. */
  endless?(input: In): boolean
  /** Which node's it is, where the target is `node`. Absent or undefined: of the process that the call has reached. */
  locate?(input: In): Place | undefined
  /** Throws a Refusal. Called at every hop. */
  authorize(input: In, identity: Identity): void
  run(input: In, call: Call): Promise<Out> | AsyncIterable<Chunk>
}

/** An operation whose types nobody needs: what tables and transports hold. */
export type AnyOperation = Operation<unknown, unknown>

export function isStreamHead(chunk: Chunk): chunk is StreamHead {
  return !(chunk instanceof Uint8Array)
}
