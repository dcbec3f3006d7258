/**
 * The link between a primary and its secondaries: one gRPC service with mutual TLS under the primary's certificate authority
 * (`certificates.ts`). Messages are MessagePack (`messages.ts`); the service is declared in code.
 *
 * This file has what both ends share, and the client of the secondary. `link-server.ts` is the server of the primary.
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
import { serverNameOf, type Upstream } from './certificates.ts'
import { connectionFault } from './connection-fault.ts'
import {
  MESSAGE_BYTES_MAX,
  type LinkMethod,
  METHODS,
  pack,
  REQUEST_BYTES_MAX,
  type RequestOf,
  type ResponseOf,
  type UnaryMethod,
  unpackSmall,
} from './messages.ts'

const SERVICE = 'outpost.replication.v1'

/**
 * Why one end refuses the other. `unknown` certificate not issued · `revoked` · `expired` activation not used in time · `used` a newer
 * activation exists · `set` another replication set · `version` · `deposed` replaced by a newer primary · `busy` over a limit, or
 * another connection of this secondary is live · `unproven` no valid proof of membership · `sealed` proofs are not available while
 * sealed · `lost` no connection · `malformed` · `failed` anything else.
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
/** gRPC codes: canceled, deadline exceeded, unavailable. */
const LOST: ReadonlySet<number> = new Set([1, 4, 14])
/** Trailer of a refused call. */
export const REASON_KEY = 'outpost-reason'

export class LinkError extends Fault {
  readonly reason: LinkRefusal

  constructor(reason: LinkRefusal, message: string, options?: ErrorOptions) {
    super(message, options)
    this.reason = reason
  }
}

export const pathOf = (method: LinkMethod) => `/${SERVICE}/${method}`

/** For both ends: no retries in gRPC, no proxy, and keepalive to detect a dead peer. */
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
    throw new LinkError('lost', await connectionFault(upstream, hostAndPort(address), signal))
  }

  private constructor(address: string, client: Client, grpc: typeof import('@grpc/grpc-js')) {
    this.address = address
    this.#client = client
    this.#grpc = grpc
  }

  /** gRPC connectivity state in lower case: `ready`, `connecting`, `idle`, `transient_failure`, `shutdown`. */
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
          else if (response === undefined) reject(new LinkError('malformed', `empty response to ${method}`))
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

/** Resolves to false when the first attempt fails: the caller decides about retries. */
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

function parsed<M extends LinkMethod>(method: M, bytes: Buffer): ResponseOf<M> {
  return unpackSmall(METHODS[method].response, bytes)
}

const valuesIn = (bytes: Buffer) => parsed('Values', bytes)

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
function hostAndPort(address: string): string {
  const plain = address.replace(/^https?:\/\//, '').replace(/\/$/, '')
  const match = /^(\[[0-9a-fA-F:.]+\]|[^:/\s]+):(\d{1,5})$/.exec(plain)
  const port = Number(match?.[2])
  if (!match || port < 1 || port > 65_535)
    throw new LinkError('failed', `malformed address "${address}", expected host:port`)
  return plain
}

/** Each promotion raises the epoch by one, so a peer is never far ahead. */
export const EPOCH_STEP_MAX = 1024

/** Throws a LinkError for an epoch too far ahead: a store that adopts an epoch can never go below it, and the range is finite. */
export function checkEpoch(named: number, own: number): void {
  if (named > own + EPOCH_STEP_MAX) {
    throw new LinkError('malformed', `epoch ${named} is too far above epoch ${own} of this cluster`)
  }
}
