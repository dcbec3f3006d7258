/**
 * The primary's end of the link: listens on the cluster port, accepts certificates of its authority, identifies secondaries by
 * fingerprint, and closes the connections of a revoked certificate.
 *
 * This file accepts the sockets and hands them to the gRPC server, so that it can count and close them. Bounded: connections in total
 * and per certificate, handshake time, concurrent calls per certificate over all its connections, bytes of a request, and one message
 * in flight per call.
 */
import type {
  ConnectionInjector,
  sendUnaryData,
  Server,
  ServerDuplexStream,
  ServerUnaryCall,
  ServerWritableStream,
  StatusObject,
} from '@grpc/grpc-js'
import { randomBytes } from 'node:crypto'
import { type AddressInfo, createServer, type Server as NetServer, type Socket } from 'node:net'
import type { Writable } from 'node:stream'
import { Fault, messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { type LinkIdentity, plainFingerprint } from './certificates.ts'
import { CHANNEL_OPTIONS, LinkError, pathOf, REASON_KEY } from './link.ts'
import {
  type LinkMethod,
  METHODS,
  pack,
  packSmall,
  REQUEST_BYTES_MAX,
  type RequestOf,
  type ResponseOf,
  type UnaryMethod,
  unpack,
} from './messages.ts'

/** Open connections of all secondaries; a secondary needs one. */
const CONNECTIONS_MAX = 256
/** Open connections of one certificate; a secondary needs one, and a second one while it reconnects. */
const OWN_CONNECTIONS_MAX = 8
/** Idle timeout of a connection without calls. */
const IDLE_MS = 60_000
/** From accept to the first call, including the TLS handshake. */
const FIRST_CALL_MS = 10_000
const NONCE_BYTES = 16

export interface Peer {
  readonly fingerprint: string
  /** host:port */
  readonly address: string
  readonly connection: PeerConnection
}

export interface PeerConnection {
  /** 16 random bytes: proofs of membership are bound to it. */
  readonly nonce: Buffer
  /** Has a `Follow` stream: it is not closed in favor of newer connections of the same certificate. */
  isFollowed: boolean
  /** The peer has proven its membership on it. */
  isProven: boolean
}

export type FollowCall = ServerDuplexStream<RequestOf<'Follow'>, ResponseOf<'Follow'>>

type Answer<M extends UnaryMethod> = (peer: Peer, request: RequestOf<M>) => Promise<ResponseOf<M>>

/** Handlers of the primary. Errors reach the peer; a LinkError with its reason. */
export interface LinkService {
  readonly unary: { readonly [M in UnaryMethod]: Answer<M> }
  /** The stream ends when it resolves. */
  follow(peer: Peer, call: FollowCall): Promise<void>
  values(peer: Peer, request: RequestOf<'Values'>): AsyncIterable<ResponseOf<'Values'>>
}

export interface LinkServerOptions {
  readonly host: string
  readonly port: number
  /** PEM. */
  readonly authority: string
  readonly identity: LinkIdentity
  readonly service: LinkService
  readonly logger: Logger
}

interface Connection extends PeerConnection {
  readonly socket: Socket
  /** Undefined before the first call. */
  fingerprint: string | undefined
}

/** Serializer of messages that are packed by the handler. */
const same = (bytes: Buffer) => bytes

export class LinkServer {
  readonly #options: LinkServerOptions
  readonly #grpc: typeof import('@grpc/grpc-js')
  readonly #server: Server
  readonly #injector: ConnectionInjector
  readonly #net: NetServer
  /** By peer address. */
  readonly #connections = new Map<string, Connection>()
  readonly #calls = new CallLimiter()

  /** Rejects with a Fault if the port is not available. */
  static async listen(options: LinkServerOptions): Promise<LinkServer> {
    const server = new LinkServer(options, await import('@grpc/grpc-js'))
    await server.#listen()
    return server
  }

  private constructor(options: LinkServerOptions, grpc: typeof import('@grpc/grpc-js')) {
    this.#options = options
    this.#grpc = grpc
    this.#server = new grpc.Server({
      ...CHANNEL_OPTIONS,
      'grpc.max_concurrent_streams': CALLS_MAX,
      'grpc.max_receive_message_length': REQUEST_BYTES_MAX,
      'grpc.max_connection_idle_ms': IDLE_MS,
    })
    const { unary } = options.service
    this.#serveUnary('Join', unary.Join)
    this.#serveUnary('Pages', unary.Pages)
    this.#serveUnary('Subpages', unary.Subpages)
    this.#serveUnary('Leaves', unary.Leaves)
    this.#serveUnary('Fence', unary.Fence)
    this.#serveUnary('Ping', unary.Ping)
    this.#serveFollow()
    this.#serveValues()
    const { authority, identity } = options
    const credentials = grpc.ServerCredentials.createSsl(
      Buffer.from(authority),
      [{ private_key: Buffer.from(identity.key), cert_chain: Buffer.from(identity.certificate) }],
      true,
    )
    this.#injector = this.#server.createConnectionInjector(credentials)
    this.#net = createServer({ noDelay: true }, (socket) => this.#accept(socket))
  }

  get address(): { host: string; port: number } {
    const { address, port } = this.#net.address() as AddressInfo
    return { host: address, port }
  }

  get connections(): number {
    return this.#connections.size
  }

  #listen(): Promise<void> {
    const { host, port } = this.#options
    return new Promise((resolve, reject) => {
      this.#net.once('error', (error) => {
        this.close()
        reject(new Fault(`cannot listen on cluster port ${host}:${port}: ${messageOf(error)}`, { cause: error }))
      })
      this.#net.listen({ host, port }, resolve)
    })
  }

  #accept(socket: Socket): void {
    const address = nameOf(socket)
    if (this.#connections.size >= CONNECTIONS_MAX) {
      // Close the oldest connection without a call, so that silent connections do not lock out a secondary.
      const silent = [...this.#connections].find(([, { fingerprint }]) => fingerprint === undefined)
      if (!silent) return void socket.destroy()
      silent[1].socket.destroy()
      this.#connections.delete(silent[0])
    }
    const nonce = randomBytes(NONCE_BYTES)
    const connection: Connection = { socket, fingerprint: undefined, nonce, isFollowed: false, isProven: false }
    this.#connections.set(address, connection)
    const timer = setTimeout(() => connection.fingerprint ?? socket.destroy(), FIRST_CALL_MS)
    socket.on('error', () => undefined)
    socket.on('close', () => {
      clearTimeout(timer)
      if (this.#connections.get(address) === connection) this.#connections.delete(address)
    })
    this.#injector.injectConnection(socket)
  }

  /** Closes every connection of this certificate. */
  cut(fingerprint: string): void {
    for (const connection of this.#connections.values()) {
      if (connection.fingerprint === fingerprint) connection.socket.destroy()
    }
  }

  #peerOf(call: { getPeer(): string; getAuthContext(): { sslPeerCertificate?: { fingerprint256: string } } }): Peer {
    const shown = call.getAuthContext().sslPeerCertificate?.fingerprint256
    if (shown === undefined) throw new LinkError('unknown', 'no client certificate')
    const fingerprint = plainFingerprint(shown)
    const address = call.getPeer()
    const connection = this.#connections.get(address)
    if (!connection) throw new LinkError('lost', 'the connection is closed')
    if (connection.fingerprint === undefined) {
      connection.fingerprint = fingerprint
      this.#cutOldest(fingerprint)
    }
    return { fingerprint, address, connection }
  }

  /** Closes the oldest connections of a certificate that has too many, which may be dead already, but none with a `Follow` stream. */
  #cutOldest(fingerprint: string): void {
    const own = [...this.#connections.values()].filter((one) => one.fingerprint === fingerprint)
    const surplus = Math.max(0, own.length - OWN_CONNECTIONS_MAX)
    for (const { socket } of own.filter(({ isFollowed }) => !isFollowed).slice(0, surplus)) socket.destroy()
  }

  /** Rejects with a LinkError above the limit. */
  async #counted<T>(peer: Peer, method: LinkMethod, run: () => Promise<T>): Promise<T> {
    this.#calls.enter(peer.fingerprint, method)
    try {
      return await run()
    } finally {
      this.#calls.leave(peer.fingerprint, method)
    }
  }

  #serveUnary<M extends UnaryMethod>(method: M, answerTo: Answer<M>): void {
    const handle = (call: ServerUnaryCall<Buffer, Buffer>, answer: sendUnaryData<Buffer>) => {
      const run = async () => {
        const peer = this.#peerOf(call)
        return this.#counted(peer, method, async () => {
          const request = requestIn(method, call.request)
          const response = await answerTo(peer, request)
          return 'mayCompress' in request && request.mayCompress ? packSmall(response) : pack(response)
        })
      }
      run().then(
        (response) => answer(null, response),
        (error: unknown) => answer(this.#statusOf(error)),
      )
    }
    // Parsed in the handler: gRPC would send the message of a parser's error to the peer.
    this.#server.register(pathOf(method), handle, same, same, 'unary')
  }

  #serveFollow(): void {
    const handle = (call: FollowCall) => {
      call.on('error', () => undefined)
      const run = async () => {
        const peer = this.#peerOf(call)
        return this.#counted(peer, 'Follow', () => this.#options.service.follow(peer, call))
      }
      run().then(
        () => call.end(),
        (error: unknown) => call.emit('error', this.#statusOf(error)),
      )
    }
    this.#server.register(pathOf('Follow'), handle, pack, followingIn, 'bidi')
  }

  #serveValues(): void {
    const handle = (call: ServerWritableStream<Buffer, unknown>) => {
      call.on('error', () => undefined)
      const answer = async (peer: Peer) => {
        for await (const message of this.#options.service.values(peer, requestIn('Values', call.request))) {
          if (call.cancelled) return
          await send(call, message)
        }
      }
      const run = async () => {
        const peer = this.#peerOf(call)
        return this.#counted(peer, 'Values', () => answer(peer))
      }
      run().then(
        () => call.end(),
        (error: unknown) => call.emit('error', this.#statusOf(error)),
      )
    }
    this.#server.register(pathOf('Values'), handle, pack, same, 'serverStream')
  }

  #statusOf(error: unknown): Partial<StatusObject> {
    const { status, Metadata } = this.#grpc
    if (error instanceof LinkError) {
      const metadata = new Metadata()
      metadata.set(REASON_KEY, error.reason)
      return { code: status.FAILED_PRECONDITION, details: error.message, metadata }
    }
    if (error instanceof Refusal) return { code: status.FAILED_PRECONDITION, details: error.message }
    this.#options.logger.warn('call from a DR secondary failed', { error: messageOf(error) })
    return { code: status.INTERNAL, details: 'internal error of the primary, see its log' }
  }

  close(): void {
    this.#net.close()
    for (const { socket } of this.#connections.values()) socket.destroy()
    this.#server.forceShutdown()
  }
}

function requestIn<M extends LinkMethod>(method: M, bytes: Buffer): RequestOf<M> {
  try {
    return unpack(METHODS[method].request, bytes)
  } catch {
    throw new LinkError('malformed', `malformed ${method} request`)
  }
}

const followingIn = (bytes: Buffer) => requestIn('Follow', bytes)

/** Resolves when the message was written, so one is in flight at a time; also when the call has ended. */
export function send(call: Writable, message: unknown): Promise<void> {
  return new Promise((resolve) => {
    if (call.destroyed) return resolve()
    call.once('close', resolve)
    call.write(message, () => {
      call.off('close', resolve)
      resolve()
    })
  })
}

function nameOf(socket: Socket): string {
  // The same format as gRPC's `getPeer`.
  return `${socket.remoteAddress}:${socket.remotePort}`
}

/** Concurrent calls of one certificate; a secondary needs three. */
const CALLS_MAX = 16
/** Concurrent `Values` calls of one certificate: each may hold a value of 64 MiB. A secondary needs two. */
export const VALUES_MAX = 4
/**
 * Short calls of one certificate (`Ping`, `Fence`), counted separately: an attacker with the certificate who uses up the other slots must
 * not block the notice of a promotion.
 */
const SHORT_MAX = 4

export class CallLimiter {
  readonly #counts = new Map<string, number>()

  /** Throws a LinkError above the limit. */
  enter(fingerprint: string, method: LinkMethod): void {
    const keys = keysOf(fingerprint, method)
    for (const [key, most] of keys) {
      if ((this.#counts.get(key) ?? 0) >= most)
        throw new LinkError('busy', `too many concurrent calls from this secondary (limit ${most})`)
    }
    for (const [key] of keys) this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1)
  }

  leave(fingerprint: string, method: LinkMethod): void {
    for (const [key] of keysOf(fingerprint, method)) {
      const left = (this.#counts.get(key) ?? 1) - 1
      if (left > 0) this.#counts.set(key, left)
      else this.#counts.delete(key)
    }
  }
}

/** Counter keys of a call with their limits. */
function keysOf(fingerprint: string, method: LinkMethod): [string, number][] {
  if (method === 'Ping' || method === 'Fence') return [[`${fingerprint} short`, SHORT_MAX]]
  const all: [string, number] = [fingerprint, CALLS_MAX]
  return method === 'Values' ? [all, [`${fingerprint} values`, VALUES_MAX]] : [all]
}
