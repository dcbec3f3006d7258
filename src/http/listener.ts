/**
 * The HTTP module: bytes in, `Operation`s run, bytes out. It knows no feature.
 *
 * Path of a request. `listener` accepts the connection, within a limit per address (`connections`). Node's
 * parser reads the head within limits of size and time. An `Exchange` then runs these steps: `router` finds the
 * operation for verb and path, `request` decodes the input, the operation's schema parses it, the
 * token is resolved to an identity, the operation authorizes and runs, and `respond` or `stream` writes the result.
 *
 * Promises. An error before the first byte is a status with a text that says what to do; after it the response is aborted,
 * never ended as if it were complete. A client that sends slowly, sends too much, or does not read costs a bounded amount
 * of memory for a bounded time. Of a request, only verb, path and address reach the log.
 *
 * An endless response is aborted within seconds after its caller lost its permissions (`permission-checker`).
 *
 * Assumes that `resolve` and the operations are correct about permissions: no path here skips either.
 *
 * Failures. A slow head ends with 408, an over-long one with 431, a body over the operation's limit with 413;
 * the parser refuses Content-Length together with Transfer-Encoding (400), as well as other ambiguous messages. A
 * response that is not a stream has `requestTimeoutMs` from head to end. A long poll does not: its operation limits the wait.
 * A stream may last, but a single write that the client does not read within `stallTimeoutMs` aborts it. An upload may last
 * as long as it makes progress (`upload`). `close` drains: long polls answer at once, other pending responses finish,
 * endless streams are aborted, so that their clients resume elsewhere.
 *
 * A stream may also be requested as a WebSocket (`handshake`, `websocket`): the same exchange with another sink. A handshake
 * that is refused gets an ordinary response.
 *
 * `list-verb` adds the LIST and SCAN verbs, which Node's parser refuses.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import type { IncomingMessage, Server, ServerResponse as Response } from 'node:http'
import type { Server as TlsServer } from 'node:https'
import { type AddressInfo, connect, type Server as NetServer, type Socket } from 'node:net'
import { Fault, isErrno, messageOf, Refusal } from '../platform/errors.ts'
import { Connections } from './connections.ts'
import { Exchange, type ExchangeOptions, stoppingRefusal } from './exchange.ts'
import { requestsWebSocket, handshakeFault } from './handshake.ts'
import { ListVerb } from './list-verb.ts'
import { PathLog } from './access-log-paths.ts'
import { PermissionChecker } from './permission-checker.ts'
import { BODY_LATE, PipelineQueue } from './pipeline-queue.ts'
import { headFault, parseTarget } from './request.ts'
import type { HttpServices } from './services.ts'
import { UPLOAD_PACE, type UploadPace } from './upload.ts'
import { loadAcceptor } from './websocket.ts'

// `import` from node:http evaluates all its exports, with undici: 10 ms and 5 MB.
// node:https is loaded when needed: TLS costs 10 ms.
const { createServer, ServerResponse } = process.getBuiltinModule('node:http')

export interface ListenerOptions
  extends Omit<HttpServices, 'bodyBytesMax' | 'pathLog' | 'stopping' | 'rights' | 'uploadPace'> {
  /** How the access log shows paths. By default parameters of unknown paths are hidden. */
  readonly pathLog?: PathLog
  /** By default each caller is resolved again every second. */
  readonly rights?: PermissionChecker
  readonly host: string
  /** 0 means any free port. */
  readonly port: number
  readonly tls?: TlsFiles
  readonly limits: ListenerLimits
}

/** PEM texts, already read. */
export interface TlsFiles {
  readonly cert: string
  readonly key: string
  readonly ca?: string
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3'
  readonly verifyClient: boolean
}

export interface ListenerLimits {
  readonly connectionsPerClient: number
  readonly headerBytesMax: number
  readonly bodyBytesMax: number
  readonly headTimeoutMs: number
  readonly requestTimeoutMs: number
  readonly idleTimeoutMs: number
  readonly tlsHandshakeTimeoutMs: number
  readonly stallTimeoutMs: number
  /** Instead of `requestTimeoutMs`, for the operations that take a stream; `UPLOAD_PACE` when absent. */
  readonly uploadPace?: UploadPace
}

/** Interval and precision of timeouts. */
const SWEEP_MS = 1000
const DRAIN_MS = 10_000
const RIGHTS_CHECK_MS = 1000

export class Listener {
  readonly connections: Connections
  readonly #options: ListenerOptions
  #limits: ListenerLimits
  #certificate: string | undefined
  readonly #server: Server
  readonly #services: HttpServices
  readonly #pipeline = new PipelineQueue((socket, isBusy) => this.connections.mark(socket, isBusy))
  readonly #verbs: ListVerb
  /** New connections, for `close`: some have not sent a byte. */
  readonly #silent = new Set<Socket>()
  #sweeper: NodeJS.Timeout | undefined
  #stopping = false

  constructor(options: ListenerOptions) {
    this.#options = options
    this.#limits = options.limits
    const pathLog = options.pathLog ?? new PathLog({ isFull: () => false })
    this.#services = {
      ...options,
      pathLog,
      rights: options.rights ?? new PermissionChecker({ resolve: options.resolve, intervalMs: () => RIGHTS_CHECK_MS }),
      bodyBytesMax: () => this.#limits.bodyBytesMax,
      stopping: () => this.#stopping,
      uploadPace: () => this.#limits.uploadPace ?? UPLOAD_PACE,
    }
    this.connections = new Connections(options.limits.connectionsPerClient)
    this.#certificate = options.tls?.cert
    this.#server = this.#createServer()
    this.#verbs = new ListVerb(this.#server, options.tls ? 'secureConnection' : 'connection', this.#pipeline)
    this.#serve(this.#server)
  }

  /** Resolves to the bound address. */
  async listen(): Promise<{ host: string; port: number }> {
    await new Promise<void>((resolve, reject) => {
      const failed = (error: Error) => reject(this.#listenFault(error))
      this.#server.once('error', failed)
      this.#server.listen(this.#options.port, this.#options.host, () => {
        this.#server.off('error', failed)
        resolve()
      })
    })
    this.#sweeper = setInterval(() => this.#sweep(), SWEEP_MS).unref()
    const address = this.#server.address() as AddressInfo
    return { host: address.address, port: address.port }
  }

  #listenFault(error: Error): Error {
    const { host, port } = this.#options
    if (isErrno(error, 'EADDRINUSE')) {
      const text = `${host}:${port} is in use: stop the process that listens there, or choose another port (-http-port, ports.http)`
      return new Fault(text, { cause: error })
    }
    if (!isErrno(error, 'EACCES')) return error
    return new Fault(`not allowed to listen on ${host}:${port}: choose a port above 1023`, { cause: error })
  }

  /**
   * Stops: long polls are answered at once, other requests in progress finish within `DRAIN_MS`, endless streams break, and idle
   * connections are closed.
   */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    // Node counts a connection that has not sent anything as busy.
    for (const socket of this.#silent) if (socket.bytesRead === 0) socket.destroy()
    this.#stopping = true
    for (const exchange of this.#pipeline.active) exchange.drain()
    this.#server.closeIdleConnections()
    const limit = setTimeout(() => this.#closeAll(), DRAIN_MS)
    const idle = setInterval(() => this.#closeIdle(), 50)
    await closed
    clearTimeout(limit)
    clearInterval(idle)
    clearInterval(this.#sweeper)
  }

  #closeIdle(): void {
    this.#server.closeIdleConnections()
    for (const exchange of this.#pipeline.active) if (exchange.over) exchange.cut(stoppingRefusal())
  }

  #closeAll(): void {
    this.#server.closeAllConnections()
    // Node does not know those that became WebSockets.
    for (const exchange of this.#pipeline.active) exchange.response.destroy()
  }

  /** PEM of the certificate for new connections; undefined without TLS. */
  get certificate(): string | undefined {
    return this.#certificate
  }

  /** Certificates for new connections. Throws, and changes nothing, for invalid ones. */
  setTls(tls: TlsFiles): void {
    if (!isTls(this.#server) || tls.verifyClient !== this.#options.tls?.verifyClient) {
      throw new Fault('tls.http and tls.verify_https_client require a restart')
    }
    this.#server.setSecureContext(secureContext(tls))
    this.#certificate = tls.cert
  }

  /** Whether a connection to the listener's own address is accepted within this time. Never rejects. */
  acceptsConnections(withinMs: number): Promise<boolean> {
    return acceptsConnections(this.#server, withinMs)
  }

  /**
   * Changes the limits. `headerBytesMax` and `tlsHandshakeTimeoutMs` require a restart, and an open
   * connection keeps its idle timeout until its next request.
   */
  setLimits(limits: ListenerLimits): void {
    this.#limits = limits
    this.connections.setLimit(limits.connectionsPerClient)
    this.#server.headersTimeout = limits.headTimeoutMs
    this.#server.requestTimeout = limits.requestTimeoutMs
    this.#server.keepAliveTimeout = limits.idleTimeoutMs
  }

  /** Additional host names on loopback, from the next request on. */
  setHosts(names: readonly string[]): void {
    this.#options.servedHosts?.set(names)
  }

  get activeExchanges(): number {
    return this.#pipeline.active.length
  }

  #createServer(): Server {
    const { limits, tls } = this.#options
    const common = {
      maxHeaderSize: limits.headerBytesMax,
      headersTimeout: limits.headTimeoutMs,
      requestTimeout: limits.requestTimeoutMs,
      keepAliveTimeout: limits.idleTimeoutMs,
      connectionsCheckingInterval: SWEEP_MS,
      // Detects clients whose host has gone.
      keepAlive: true,
      keepAliveInitialDelay: 30_000,
      // Other upgrades are ignored and the request is answered normally.
      shouldUpgradeCallback: (request: IncomingMessage) => this.#mayUpgrade(request),
    }
    if (!tls) return createServer(common)
    const secure = { ...secureContext(tls), handshakeTimeout: limits.tlsHandshakeTimeoutMs }
    return process.getBuiltinModule('node:https').createServer({ ...common, ...secure })
  }

  #serve(server: Server): void {
    server.on('request', (request, response) => this.#serveRequest(request, response))
    server.on('checkContinue', (request, response) => this.#serveRequest(request, response, { bodyOnDemand: true }))
    server.on('upgrade', (request, _, rest) => void this.#upgrade(request, rest))
    // Node would answer these itself, and the verb would be assigned to the next request.
    server.on('checkExpectation', (request, response) => this.#serveRequest(request, response))
    server.on('connection', (socket: Socket) => this.#admit(socket))
    server.on('secureConnection', (socket: Socket) => this.connections.secured(socket))
    server.on('clientError', (error, stream) => {
      const socket = stream as Socket
      if (!this.#verbs.recovers(error, socket)) this.#pipeline.refuse(error, socket)
    })
  }

  #admit(socket: Socket): void {
    // A TLS client cannot read a plain response.
    if (!this.connections.admit(socket, { answer: !this.#options.tls })) return
    this.#silent.add(socket)
    socket.once('close', () => this.#silent.delete(socket))
  }

  /** If false, the request gets an ordinary response with the reason. */
  #mayUpgrade(request: IncomingMessage): boolean {
    if (
      !requestsWebSocket(request) ||
      headFault(request) ||
      request.socket.writableEnded ||
      this.#pipeline.isBusy(request.socket)
    )
      return false
    const { router } = this.#options
    try {
      const { path } = parseTarget(request.url ?? '/')
      // Its operation is not loaded yet: the exchange waits for it and refuses the handshake if necessary.
      if (router.isLoadedLater(path)) return true
      const { operation } = router.match(request.method ?? '', path)
      return handshakeFault(request, operation, this.#options.isOpen?.() ?? false) === undefined
    } catch {
      return false
    }
  }

  async #upgrade(request: IncomingMessage, rest: Buffer): Promise<void> {
    const { socket } = request
    socket.on('error', () => socket.destroy())
    try {
      const acceptor = await loadAcceptor()
      if (socket.destroyed) return
      const response = new ServerResponse(request)
      response.assignSocket(socket)
      this.#serveRequest(request, response, { upgrade: { of: { request, socket, rest }, acceptor } })
    } catch (error) {
      this.#options.logger.error('opening a WebSocket failed', { error: messageOf(error) })
      socket.destroy()
    }
  }

  #serveRequest(request: IncomingMessage, response: Response, options?: ExchangeOptions): void {
    // Node parses the first bytes of a connection even if `#admit` refused it.
    if (request.socket.writableEnded) return
    this.#verbs.name(request)
    this.#pipeline.enqueue(request, response, () => {
      const exchange = new Exchange(request, response, this.#services, options)
      exchange.serve().catch((error: unknown) => {
        this.#services.logger.error('writing a response failed', { error: messageOf(error) })
        response.destroy()
      })
      return exchange
    })
  }

  #sweep(): void {
    const nowMs = performance.now()
    const { requestTimeoutMs, stallTimeoutMs } = this.#limits
    for (const exchange of this.#pipeline.active) {
      const stalledMs = exchange.blockedSinceMs === undefined ? 0 : nowMs - exchange.blockedSinceMs
      if (stalledMs > stallTimeoutMs)
        exchange.cut(new Refusal('request_timeout', 'the client did not read the response in time'))
      const isLimited = !exchange.begun && !exchange.isUpload && !exchange.isLongPoll
      if (isLimited && nowMs - exchange.startedAtMs > requestTimeoutMs)
        exchange.cut(exchange.request.complete ? timeoutRefusal() : new Refusal('request_timeout', BODY_LATE))
    }
  }
}

/** Node ignores an empty PEM: it would serve without a certificate, or trust every public CA. */
function checkPem(tls: TlsFiles): void {
  const certificate = parsed('tls.cert_file contains no certificate', () => new X509Certificate(tls.cert))
  const key = parsed('tls.key_file contains no private key', () => createPrivateKey(tls.key))
  if (!certificate.checkPrivateKey(key)) throw new Fault('tls.key_file is not the key of tls.cert_file')
  const { ca } = tls
  if (ca !== undefined) parsed('tls.ca_file contains no certificate', () => new X509Certificate(ca))
}

function parsed<T>(otherwise: string, parse: () => T): T {
  try {
    return parse()
  } catch {
    throw new Fault(otherwise)
  }
}

function isTls(server: Server): server is TlsServer {
  return 'setSecureContext' in server
}

function secureContext(tls: TlsFiles) {
  checkPem(tls)
  return {
    cert: tls.cert,
    key: tls.key,
    minVersion: tls.minVersion,
    requestCert: tls.verifyClient,
    rejectUnauthorized: tls.verifyClient,
    ...(tls.ca === undefined ? {} : { ca: tls.ca }),
  }
}

function timeoutRefusal(): Refusal {
  return new Refusal('unavailable', 'the request took too long, try again later')
}

const LOOPBACK_OF: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' }

/**
 * Whether the server accepts a connection to its own address within this time: proves that the listener, the kernel and the event
 * loop work. Nothing is sent, so it works with TLS too and leaves no line in the access log. Never rejects.
 */
function acceptsConnections(server: NetServer, withinMs: number): Promise<boolean> {
  const address = server.address() as AddressInfo | null // null also when it does not listen (any more)
  if (!address) return Promise.resolve(false)
  return new Promise((resolve) => {
    const arrived = new Set<number | undefined>()
    const socket = connect({ port: address.port, host: LOOPBACK_OF[address.address] ?? address.address })
    const finish = (result: boolean) => {
      clearTimeout(limit)
      server.off('connection', onArrival)
      socket.destroy()
      resolve(result)
    }
    const limit = setTimeout(() => finish(false), withinMs)
    // Both events can come first.
    const check = () => {
      if (!socket.connecting && arrived.has(socket.localPort)) finish(true)
    }
    const onArrival = (peer: Socket) => {
      arrived.add(peer.remotePort)
      check()
    }
    server.on('connection', onArrival)
    socket.on('connect', check)
    socket.on('error', () => finish(false))
  })
}
