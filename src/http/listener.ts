/**
 * The HTTP room: bytes in, `Operation`s run, bytes out. It knows no feature.
 *
 * The way of a request. `listener` accepts the connection, unless its address holds too many (`connections`). Node's
 * parser reads the head within limits of size and time. An `Exchange` then goes through its list: `router` finds the
 * operation for verb and path, `request` decodes what it may be parsed from, the operation's schema parses it, the
 * token is resolved to an identity, the operation authorises and runs, and `respond` or `stream` writes the result.
 *
 * Promises. An error before the first byte is a status with a text that says what to do; after it the answer is broken,
 * never ended as if it were whole. A caller that sends slowly, sends too much, or takes nothing costs a bounded amount
 * of memory for a bounded time. What a caller sends never reaches the log except verb, path and address.
 *
 * An endless answer breaks within seconds once its caller's rights are gone (`rights`): permission is not judged at the
 * beginning alone.
 *
 * Assumes that `resolve` and the operations are correct about permission: no path here skips either.
 *
 * What can go wrong. A slow head ends with 408, an over-long one with 431, a body over the operation's limit with 413;
 * Content-Length together with Transfer-Encoding is refused by the parser (400), as are other ambiguous messages. An
 * answer that is not a stream has `requestTimeoutMs` from head to end. A long poll does not: its operation limits the wait.
 * A stream may last, but a single write that its caller does not take within `stallTimeoutMs` cuts it. An upload may last
 * for as long as it makes progress (`upload`). `close` drains: long polls answer at once, other answers under way finish,
 * endless streams break, so that their followers resume elsewhere.
 *
 * A stream may also be asked for as a WebSocket (`handshake`, `websocket`): the same exchange with another end. A request
 * that asks for one and cannot have it is answered plainly.
 *
 * The verbs LIST and SCAN, which Node's parser refuses, get past it by `list-verb`.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import type { IncomingMessage, Server, ServerResponse as Response } from 'node:http'
import type { Server as TlsServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { Fault, isErrno, messageOf, Refusal } from '../platform/errors.ts'
import { Rights } from './rights.ts'
import { Connections } from './connections.ts'
import { Exchange, type ExchangeOptions, type Services, stopping } from './exchange.ts'
import { asksForWebSocket, handshakeFault } from './handshake.ts'
import { ListVerb } from './list-verb.ts'
import { takesConnections } from './own-call.ts'
import { PathLog } from './path-log.ts'
import { headFault, parseTarget } from './request.ts'
import { BODY_LATE, Turns } from './pipeline-queue.ts'
import { UPLOAD_PACE, type UploadPace } from './upload.ts'
import { loadAcceptor } from './websocket.ts'

// `import` from node:http would evaluate all it exports, the whole of undici included: 10 ms and 5 MB for nothing.
// That of node:https is loaded where it serves: TLS is 10 ms.
const { createServer, ServerResponse } = process.getBuiltinModule('node:http')

export interface ListenerOptions
  extends Omit<Services, 'bodyBytesMax' | 'pathLog' | 'stopping' | 'rights' | 'uploadPace'> {
  /** How the access log shows paths. Absent: names in paths that the table does not have are hidden. */
  readonly pathLog?: PathLog
  /** By default each caller is resolved again every second. */
  readonly rights?: Rights
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

/** How often timeouts are looked at; they are that exact. */
const SWEEP_MS = 1000
const DRAIN_MS = 10_000
const RIGHTS_CHECK_MS = 1000

export class Listener {
  readonly connections: Connections
  readonly #options: ListenerOptions
  #limits: ListenerLimits
  #certificate: string | undefined
  readonly #server: Server
  readonly #services: Services
  readonly #turns = new Turns((socket, isBusy) => this.connections.mark(socket, isBusy))
  readonly #verbs: ListVerb
  /** Connections that have not sent a byte yet. */
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
      rights: options.rights ?? new Rights({ resolve: options.resolve, intervalMs: () => RIGHTS_CHECK_MS }),
      bodyBytesMax: () => this.#limits.bodyBytesMax,
      stopping: () => this.#stopping,
      uploadPace: () => this.#limits.uploadPace ?? UPLOAD_PACE,
    }
    this.connections = new Connections(options.limits.connectionsPerClient)
    this.#certificate = options.tls?.cert
    this.#server = this.#createServer()
    this.#verbs = new ListVerb(this.#server, options.tls ? 'secureConnection' : 'connection', this.#turns)
    this.#serve(this.#server)
  }

  /** Starts to listen; resolves with the address that is really used. */
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
      const text = `${host}:${port} is in use: stop what listens there, or choose another port (-http-port, ports.http)`
      return new Fault(text, { cause: error })
    }
    if (!isErrno(error, 'EACCES')) return error
    return new Fault(`not allowed to listen on ${host}:${port}: choose a port above 1023`, { cause: error })
  }

  /**
   * Stops: long polls answer at once, other answers under way finish within `DRAIN_MS`, endless streams break, idle
   * connections close.
   */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    // To Node a connection that has never sent anything is busy.
    for (const socket of this.#silent) if (socket.bytesRead === 0) socket.destroy()
    this.#stopping = true
    for (const exchange of this.#turns.active) exchange.drain()
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
    for (const exchange of this.#turns.active) if (exchange.over) exchange.cut(stopping())
  }

  #closeAll(): void {
    this.#server.closeAllConnections()
    // Node has forgotten those that became WebSockets.
    for (const exchange of this.#turns.active) exchange.response.destroy()
  }

  /** PEM of the certificate for new connections; undefined without TLS. */
  get certificate(): string | undefined {
    return this.#certificate
  }

  /** Certificates for connections from now on; those that are open keep theirs. Throws, and changes nothing, when they are no good. */
  setTls(tls: TlsFiles): void {
    if (!isTls(this.#server) || tls.verifyClient !== this.#options.tls?.verifyClient) {
      throw new Fault('tls.http and tls.verify_https_client take effect with a restart only')
    }
    this.#server.setSecureContext(secureContext(tls))
    this.#certificate = tls.cert
  }

  /** Whether a connection to our own address arrives here within this time. Never rejects. */
  answers(withinMs: number): Promise<boolean> {
    return takesConnections(this.#server, withinMs)
  }

  /**
   * Limits from now on. `headerBytesMax` and `tlsHandshakeTimeoutMs` are those of the start whatever is given, and a
   * connection that is open keeps how long it may idle until its next request.
   */
  setLimits(limits: ListenerLimits): void {
    this.#limits = limits
    this.connections.setLimit(limits.connectionsPerClient)
    this.#server.headersTimeout = limits.headTimeoutMs
    this.#server.requestTimeout = limits.requestTimeoutMs
    this.#server.keepAliveTimeout = limits.idleTimeoutMs
  }

  /** Names that are served on loopback, beside those of loopback, from the next request on. */
  setHosts(names: readonly string[]): void {
    this.#options.servedHosts?.set(names)
  }

  get activeExchanges(): number {
    return this.#turns.active.length
  }

  #createServer(): Server {
    const { limits, tls } = this.#options
    const common = {
      maxHeaderSize: limits.headerBytesMax,
      headersTimeout: limits.headTimeoutMs,
      requestTimeout: limits.requestTimeoutMs,
      keepAliveTimeout: limits.idleTimeoutMs,
      connectionsCheckingInterval: SWEEP_MS,
      // Finds out about callers whose host vanished without a word.
      keepAlive: true,
      keepAliveInitialDelay: 30_000,
      // Whatever else asks for an upgrade is answered as if it had not.
      shouldUpgradeCallback: (request: IncomingMessage) => this.#mayUpgrade(request),
    }
    if (!tls) return createServer(common)
    const secure = { ...secureContext(tls), handshakeTimeout: limits.tlsHandshakeTimeoutMs }
    return process.getBuiltinModule('node:https').createServer({ ...common, ...secure })
  }

  #serve(server: Server): void {
    server.on('request', (request, response) => this.#take(request, response))
    server.on('checkContinue', (request, response) => this.#take(request, response, { bodyOnDemand: true }))
    server.on('upgrade', (request, _, rest) => void this.#upgrade(request, rest))
    // Node would answer these by itself, and the verb of such a request would be taken for that of the next one.
    server.on('checkExpectation', (request, response) => this.#take(request, response))
    server.on('connection', (socket: Socket) => this.#admit(socket))
    server.on('secureConnection', (socket: Socket) => this.connections.secured(socket))
    server.on('clientError', (error, stream) => {
      const socket = stream as Socket
      if (!this.#verbs.recovers(error, socket)) this.#turns.refuse(error, socket)
    })
  }

  #admit(socket: Socket): void {
    // Those who speak TLS could not read a plain answer.
    if (!this.connections.admit(socket, { answer: !this.#options.tls })) return
    this.#silent.add(socket)
    socket.once('close', () => this.#silent.delete(socket))
  }

  /** Where this says no, the request is answered as any other, and its exchange says what is wrong with it. */
  #mayUpgrade(request: IncomingMessage): boolean {
    if (
      !asksForWebSocket(request) ||
      headFault(request) ||
      request.socket.writableEnded ||
      this.#turns.busy(request.socket)
    )
      return false
    try {
      const { operation } = this.#options.router.match(request.method ?? '', parseTarget(request.url ?? '/').path)
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
      this.#take(request, response, { upgrade: { of: { request, socket, rest }, acceptor } })
    } catch (error) {
      this.#options.logger.error('a WebSocket could not be opened', { error: messageOf(error) })
      socket.destroy()
    }
  }

  #take(request: IncomingMessage, response: Response, options?: ExchangeOptions): void {
    // Node's own listener has seen the connection before it was turned away, and parses what came with it.
    if (request.socket.writableEnded) return
    this.#verbs.name(request)
    this.#turns.take(request, response, () => {
      const exchange = new Exchange(request, response, this.#services, options)
      exchange.serve().catch((error: unknown) => {
        this.#services.logger.error('an answer could not be given', { error: messageOf(error) })
        response.destroy()
      })
      return exchange
    })
  }

  #sweep(): void {
    const nowMs = performance.now()
    const { requestTimeoutMs, stallTimeoutMs } = this.#limits
    for (const exchange of this.#turns.active) {
      const stalledMs = exchange.waitingSinceMs === undefined ? 0 : nowMs - exchange.waitingSinceMs
      if (stalledMs > stallTimeoutMs) exchange.cut(new Refusal('request_timeout', 'the answer was not taken in time'))
      const isLimited = !exchange.begun && !exchange.isUpload && !exchange.isLongPoll
      if (isLimited && nowMs - exchange.startedAtMs > requestTimeoutMs)
        exchange.cut(exchange.request.complete ? tooLong() : new Refusal('request_timeout', BODY_LATE))
    }
  }
}

/** Node takes an empty text for none at all: then it would serve without a certificate, or trust every public authority. */
function checkPem(tls: TlsFiles): void {
  const certificate = parsed('tls.cert_file holds no certificate', () => new X509Certificate(tls.cert))
  const key = parsed('tls.key_file holds no private key', () => createPrivateKey(tls.key))
  if (!certificate.checkPrivateKey(key)) throw new Fault('tls.key_file is not the key of tls.cert_file')
  const { ca } = tls
  if (ca !== undefined) parsed('tls.ca_file holds no certificate', () => new X509Certificate(ca))
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

function tooLong(): Refusal {
  return new Refusal('unavailable', 'the request took too long, try again later')
}
