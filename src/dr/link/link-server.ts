/**
 * The primary's end of the link: it listens on the cluster port, lets in whom the authority has certified, knows them by the
 * fingerprint of their certificate, and cuts a connection when its certificate is revoked.
 *
 * The sockets are ours and go into gRPC's server from here, so that they can be counted and cut. Bounded: connections in all and of
 * one certificate, time for the handshake, calls of one certificate over all its connections, bytes of a request, and one message on
 * its way at a time for each call.
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
import type { Writable } from 'node:stream'
import { type AddressInfo, createServer, type Server as NetServer, type Socket } from 'node:net'
import { Fault, messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { CallCount, CALLS_MAX } from './call-count.ts'
import { plainFingerprint, type Identity } from './certificates.ts'
import { CHANNEL_OPTIONS, LinkError, pathOf, REASON_KEY } from './link.ts'
import {
  type Method,
  METHODS,
  pack,
  packSmall,
  REQUEST_BYTES_MAX,
  type RequestOf,
  type ResponseOf,
  type UnaryMethod,
  unpack,
} from './messages.ts'

/** Open at once, of all secondaries; a secondary needs one. */
const CONNECTIONS_MAX = 256
/** Of one certificate; a secondary needs one, and has another while it dials anew. */
const OWN_CONNECTIONS_MAX = 8
/** Of a connection that makes no call. */
const IDLE_MS = 60_000
/** Until the first call of a new connection: TLS and HTTP/2 are up by then. */
const FIRST_CALL_MS = 10_000
const NONCE_BYTES = 16

/** Who calls. */
export interface Peer {
  readonly fingerprint: string
  /** host:port */
  readonly address: string
  readonly connection: PeerConnection
}

export interface PeerConnection {
  /** 16 random bytes: proofs of membership are made for it. */
  readonly nonce: Buffer
  /** A follower is served on it: it is not closed to make place for newer connections of the same certificate. */
  isFollowed: boolean
  /** The peer has proven its membership on it. */
  isProven: boolean
}

export type FollowCall = ServerDuplexStream<RequestOf<'Follow'>, ResponseOf<'Follow'>>

type Answer<M extends UnaryMethod> = (peer: Peer, request: RequestOf<M>) => Promise<ResponseOf<M>>

/** What the primary does. Whatever throws is told to the caller: a LinkError with its reason. */
export interface LinkService {
  readonly unary: { readonly [M in UnaryMethod]: Answer<M> }
  /** Ends when it resolves. */
  follow(peer: Peer, call: FollowCall): Promise<void>
  values(peer: Peer, request: RequestOf<'Values'>): AsyncIterable<ResponseOf<'Values'>>
}

export interface LinkServerOptions {
  readonly host: string
  readonly port: number
  /** PEM. */
  readonly authority: string
  readonly identity: Identity
  readonly service: LinkService
  readonly logger: Logger
}

interface Connection extends PeerConnection {
  readonly socket: Socket
  /** Of the certificate, once it has made a call. */
  fingerprint: string | undefined
}

/** Of a message that is packed elsewhere. */
const same = (bytes: Buffer) => bytes

export class LinkServer {
  readonly #options: LinkServerOptions
  readonly #grpc: typeof import('@grpc/grpc-js')
  readonly #server: Server
  readonly #injector: ConnectionInjector
  readonly #net: NetServer
  /** By the peer's address. */
  readonly #connections = new Map<string, Connection>()
  /** Calls under way, by the fingerprint of the certificate. */
  readonly #calls = new CallCount()

  /** Rejects with a Fault when the port cannot be had. */
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
        reject(new Fault(`the cluster port ${host}:${port} cannot be had: ${messageOf(error)}`, { cause: error }))
      })
      this.#net.listen({ host, port }, resolve)
    })
  }

  #accept(socket: Socket): void {
    const address = nameOf(socket)
    if (this.#connections.size >= CONNECTIONS_MAX) {
      // The oldest that has not said who it is gives way: silent connections keep no secondary out.
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

  /** Cuts every connection of this certificate. */
  cut(fingerprint: string): void {
    for (const connection of this.#connections.values()) {
      if (connection.fingerprint === fingerprint) connection.socket.destroy()
    }
  }

  #peerOf(call: { getPeer(): string; getAuthContext(): { sslPeerCertificate?: { fingerprint256: string } } }): Peer {
    const shown = call.getAuthContext().sslPeerCertificate?.fingerprint256
    if (shown === undefined) throw new LinkError('unknown', 'no certificate was shown')
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

  /** Closes the oldest connections of a certificate that has too many, which may be lost already, but none that is followed. */
  #cutOldest(fingerprint: string): void {
    const own = [...this.#connections.values()].filter((one) => one.fingerprint === fingerprint)
    const surplus = Math.max(0, own.length - OWN_CONNECTIONS_MAX)
    for (const { socket } of own.filter(({ isFollowed }) => !isFollowed).slice(0, surplus)) socket.destroy()
  }

  /** Runs a call. Rejects with a LinkError for one too many. */
  async #counted<T>(peer: Peer, method: Method, run: () => Promise<T>): Promise<T> {
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
    // Parsed in the handler: what a parser throws here would be told to the peer as it is.
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
    this.#options.logger.warn('a call of a secondary failed', { error: messageOf(error) })
    return { code: status.INTERNAL, details: 'internal error of the primary, see its log' }
  }

  /** Cuts everything. */
  close(): void {
    this.#net.close()
    for (const { socket } of this.#connections.values()) socket.destroy()
    this.#server.forceShutdown()
  }
}

function requestIn<M extends Method>(method: M, bytes: Buffer): RequestOf<M> {
  try {
    return unpack(METHODS[method].request, bytes)
  } catch {
    throw new LinkError('malformed', `a request of ${method} that makes no sense`)
  }
}

const followingIn = (bytes: Buffer) => requestIn('Follow', bytes)

/** Resolves when the message has left for the peer, so only one is on its way; also when the call has ended. */
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
  // As gRPC names a peer: both must fit each other.
  return `${socket.remoteAddress}:${socket.remotePort}`
}
