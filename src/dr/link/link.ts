/**
 * The link between a primary and its secondaries: one gRPC service over TLS in which both ends show certificates of the
 * primary's authority (`certificates.ts`). Messages are MessagePack (`messages.ts`), and the service is declared in code.
 *
 * This file is what both ends share, and the secondary's end of it. `link-server.ts` is the primary's.
 */
import type {
  ChannelOptions,
  Client,
  ClientDuplexStream,
  ClientReadableStream,
  connectivityState,
  ServiceError,
} from '@grpc/grpc-js'
import { Fault } from '../../platform/errors.ts'
import { serverNameOf } from './certificates.ts'
import {
  MESSAGE_BYTES_MAX,
  type Method,
  METHODS,
  pack,
  REQUEST_BYTES_MAX,
  type RequestOf,
  type ResponseOf,
  type UnaryMethod,
  unpackSmall,
} from './messages.ts'
import { unreachableReason } from './unreachable.ts'

export const SERVICE = 'outpost.replication.v1'

/**
 * Why one end refuses the other. `unknown` no such certificate was issued · `revoked` · `expired` the activation was not used in
 * time · `used` the token was used by another · `set` another replication set · `version` · `deposed` a newer primary rules ·
 * `busy` too much at once, or another connection of this secondary is live · `unproven` no valid proof of membership · `sealed` no
 * proof can be made or verified now · `lost` no connection, or it was cut · `malformed` · `failed` anything else.
 */
export type LinkRefusal =
  | 'unknown'
  | 'revoked'
  | 'expired'
  | 'used'
  | 'set'
  | 'version'
  | 'deposed'
  | 'busy'
  | 'unproven'
  | 'sealed'
  | 'lost'
  | 'malformed'
  | 'failed'

const REASONS: ReadonlySet<string> = new Set<LinkRefusal>([
  'unknown',
  'revoked',
  'expired',
  'used',
  'set',
  'version',
  'deposed',
  'busy',
  'unproven',
  'sealed',
  'malformed',
])
/** Codes of gRPC: cancelled, deadline exceeded, unavailable. */
const LOST: ReadonlySet<number> = new Set([1, 4, 14])
/** Of the trailers of a call that was refused. */
export const REASON_KEY = 'outpost-reason'

export class LinkError extends Fault {
  readonly reason: LinkRefusal

  constructor(reason: LinkRefusal, message: string, options?: ErrorOptions) {
    super(message, options)
    this.reason = reason
  }
}

export const pathOf = (method: Method) => `/${SERVICE}/${method}`

/** For both ends: nothing is tried again beneath us, no proxy, and a peer that fell silent is noticed. */
export const CHANNEL_OPTIONS: ChannelOptions = {
  'grpc.keepalive_time_ms': 10_000,
  'grpc.keepalive_timeout_ms': 5000,
  'grpc.keepalive_permit_without_calls': 1,
  'grpc.enable_retries': 0,
  'grpc.enable_http_proxy': 0,
  'grpc.service_config_disable_resolution': 1,
  'grpc.use_local_subchannel_pool': 1,
  'grpc.enable_channelz': 0,
  'grpc-node.flow_control_window': 1 << 20,
}

/** How a primary is reached, and as whom. */
export interface Upstream {
  readonly setId: string
  /** PEM, all three. */
  readonly authority: string
  readonly certificate: string
  readonly key: string
}

export type FollowStream = ClientDuplexStream<RequestOf<'Follow'>, ResponseOf<'Follow'>>
export type ValuesStream = ClientReadableStream<ResponseOf<'Values'>>

/** A connection to a primary. */
export class LinkClient {
  readonly address: string
  readonly #client: Client
  readonly #grpc: typeof import('@grpc/grpc-js')

  /** Resolves when the primary has shown its certificate. Rejects with a LinkError, also when `signal` aborts. */
  static async connect(upstream: Upstream, address: string, waitMs: number, signal?: AbortSignal): Promise<LinkClient> {
    const grpc = await import('@grpc/grpc-js')
    const serverName = serverNameOf(upstream.setId)
    const credentials = grpc.credentials.createSsl(
      Buffer.from(upstream.authority),
      Buffer.from(upstream.key),
      Buffer.from(upstream.certificate),
    )
    const client = new grpc.Client(hostAndPort(address), credentials, {
      ...CHANNEL_OPTIONS,
      'grpc.ssl_target_name_override': serverName,
      'grpc.default_authority': serverName,
      'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
      'grpc.max_send_message_length': REQUEST_BYTES_MAX,
    })
    const link = new LinkClient(address, client, grpc)
    signal?.addEventListener('abort', () => client.close(), { once: true })
    if (await isReady(client.getChannel(), grpc.connectivityState, Date.now() + waitMs)) return link
    link.close()
    throw new LinkError('lost', `no answer at ${address}: ${await unreachableReason(hostAndPort(address), signal)}`)
  }

  private constructor(address: string, client: Client, grpc: typeof import('@grpc/grpc-js')) {
    this.address = address
    this.#client = client
    this.#grpc = grpc
  }

  /** As gRPC calls it, in lower case: `ready`, `connecting`, `idle`, `transient_failure`, `shutdown`. */
  get state(): string {
    return this.#grpc.connectivityState[this.#client.getChannel().getConnectivityState(false)].toLowerCase()
  }

  /** Rejects with a LinkError. */
  call<M extends UnaryMethod>(method: M, request: RequestOf<M>, waitMs: number): Promise<ResponseOf<M>> {
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        pathOf(method),
        pack,
        (bytes: Buffer) => parsed(method, bytes),
        request,
        new this.#grpc.Metadata(),
        { deadline: Date.now() + waitMs },
        (error, response) => {
          if (error) reject(linkErrorOf(error))
          else if (response === undefined) reject(new LinkError('malformed', `${method} was answered with nothing`))
          else resolve(response)
        },
      )
    })
  }

  follow(): FollowStream {
    return this.#client.makeBidiStreamRequest(pathOf('Follow'), pack, (bytes: Buffer) => parsed('Follow', bytes))
  }

  values(request: RequestOf<'Values'>): ValuesStream {
    return this.#client.makeServerStreamRequest(pathOf('Values'), pack, valuesIn, request)
  }

  close(): void {
    this.#client.close()
  }
}

/** False as soon as the first attempt fails: who dials decides when there is another. */
async function isReady(
  channel: ReturnType<Client['getChannel']>,
  states: typeof connectivityState,
  deadlineMs: number,
): Promise<boolean> {
  for (;;) {
    const state = channel.getConnectivityState(true)
    if (state === states.READY) return true
    if (state === states.TRANSIENT_FAILURE || state === states.SHUTDOWN) return false
    // oxlint-disable-next-line no-await-in-loop
    const hasChanged = await new Promise<boolean>((resolve) => {
      channel.watchConnectivityState(state, deadlineMs, (error) => resolve(error === undefined))
    })
    if (!hasChanged) return false
  }
}

function parsed<M extends Method>(method: M, bytes: Buffer): ResponseOf<M> {
  return unpackSmall(METHODS[method].response, bytes)
}

const valuesIn = (bytes: Buffer) => parsed('Values', bytes)

/** What became of a call, in our words. */
export function linkErrorOf(error: unknown): LinkError {
  if (error instanceof LinkError) return error
  const { code, details, metadata } = error as Partial<ServiceError>
  const reason = metadata?.get(REASON_KEY)[0]
  if (typeof reason === 'string' && REASONS.has(reason)) {
    return new LinkError(reason as LinkRefusal, details ?? reason, { cause: error })
  }
  const isLost = LOST.has(Number(code))
  return new LinkError(isLost ? 'lost' : 'failed', details ?? String(error), { cause: error })
}

/** `https://host:port` and `host:port` alike; throws a LinkError for anything else. */
export function hostAndPort(address: string): string {
  const plain = address.replace(/^https?:\/\//, '').replace(/\/$/, '')
  const match = /^(\[[0-9a-fA-F:.]+\]|[^:/\s]+):(\d{1,5})$/.exec(plain)
  const port = Number(match?.[2])
  if (!match || port < 1 || port > 65_535) throw new LinkError('failed', `"${address}" is no address: host:port`)
  return plain
}
