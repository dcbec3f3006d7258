/**
 * Authenticates forwarded calls on a node: by the server's assertion, never by a token. Checks the signature, the server's key,
 * the node and its run, the validity period, and that the assertion is used once. The operation then authorizes the asserted
 * permissions itself.
 *
 * A node with ACL off requires nothing: every caller has all permissions there. A node with ACL on accepts no call without an
 * assertion, so a server with ACL off, which asserts nothing, cannot bypass it.
 *
 * Clocks may differ by `CLOCK_SKEW_MS`. After a restart, the node does not know which assertions the previous process has
 * accepted. They name its run, and are refused for that: the server learns the new run and sends the call again.
 */
import type { KeyObject } from 'node:crypto'
import { Refusal } from '../../platform/errors.ts'
import { type Logger, RateLimitedLogger } from '../../platform/log.ts'
import type { Identity } from '../../platform/operation.ts'
import { identityWith } from '../trust/asserted-permissions.ts'
import {
  ASSERTION_TTL_MS,
  type AssertionClaims,
  decodeProof,
  isMacOf,
  macIn,
  runOf,
  sessionBytes,
  sessionNameIn,
} from '../trust/assertion.ts'
import { CLOCK_SKEW_MS } from '../trust/clock-skews.ts'
import { UNRESTRICTED } from '../trust/authorizer.ts'
import { CurveKey } from '../trust/envelope.ts'
import { ReplayGuard } from '../trust/replay-guard.ts'
import type { ReceivedCall } from './call-wire.ts'

/** More than a cluster has servers. */
const SESSIONS_MAX = 1024
const REPLAY_WINDOW_MS = 4 * (CLOCK_SKEW_MS + ASSERTION_TTL_MS)

/** The checks of `ServerKeys` (`server-trust.ts`) that admission needs. */
export interface ServerKeyVerifier {
  isServer(publicKey: string): boolean | Promise<boolean>
  verify(publicKey: string, bytes: Uint8Array, signature: Uint8Array): boolean
}

/** The assertion names another run of the node. The server learns the run of this process and sends the call again. */
export class StaleRunError extends Error {
  readonly run: string

  constructor(run: string) {
    super('the assertion is for another run of this node')
    this.run = run
  }
}

interface NodeSession {
  /** NKEY of the server. */
  readonly key: string
  readonly secret: KeyObject
}

/** Sessions of servers with this run of the node (`assertion.ts`). */
class NodeSessions {
  readonly #keys: ServerKeyVerifier
  readonly #nodeId: string
  readonly #curve = new CurveKey()
  readonly #known = new Map<string, NodeSession>()
  /** Name of this run. */
  readonly run = runOf(this.#curve.publicKey)

  constructor(keys: ServerKeyVerifier, nodeId: string) {
    this.#keys = keys
    this.#nodeId = nodeId
  }

  /**
   * Resolves to the key of the server that made the call, or rejects with a Refusal. A session is identified by the encoded
   * proof without its MAC, so a proof that was verified before is neither decoded nor verified again.
   */
  async serverOf({ body, proof }: ReceivedCall): Promise<string> {
    if (!proof) throw damaged()
    const name = sessionNameIn(proof)
    const known = this.#known.get(name)
    const session = known ?? this.#open(proof)
    if (!isMacOf(session.secret, body, macIn(proof))) throw refusal('the assertion is for another call')
    const isServer = this.#keys.isServer(session.key)
    if (!(typeof isServer === 'boolean' ? isServer : await isServer)) {
      throw refusal('the assertion is signed with a key that is not in nats.server_keys')
    }
    if (session !== known) this.#store(name, session)
    return session.key
  }

  #open(bytes: Uint8Array): NodeSession {
    const proof = decodeProof(bytes)
    // The MAC must be the last field, as `encodeProof` writes it, because the bytes before it identify the session.
    if (!proof || Buffer.compare(proof.mac, macIn(bytes)) !== 0) throw damaged()
    const { curve, key, signature } = proof
    if (!this.#keys.verify(key, sessionBytes(this.#nodeId, this.run, curve), signature)) {
      throw refusal('the signature of the assertion is invalid')
    }
    try {
      return { key, secret: this.#curve.sessionWithCaller(curve).toServer }
    } catch {
      throw damaged()
    }
  }

  #store(name: string, session: NodeSession): void {
    this.#known.delete(name)
    this.#known.set(name, session)
    const [oldest] = this.#known.keys()
    if (this.#known.size > SESSIONS_MAX && oldest !== undefined) this.#known.delete(oldest)
  }
}

function refusal(text: string): Refusal {
  return new Refusal('permission_denied', `this host refused the call: ${text}`)
}

function damaged(): Refusal {
  return refusal('the assertion of the call is missing or damaged')
}

export interface NodeAdmissionOptions {
  readonly nodeId: string
  readonly keys: ServerKeyVerifier
  /** True while the ACL of this node is off. */
  readonly isOpen: () => boolean
  readonly logger: Logger
  /** Wall clock in milliseconds. Default: `Date.now`. */
  readonly now?: () => number
}

export class NodeAdmission {
  readonly #options: NodeAdmissionOptions
  readonly #sessions: NodeSessions
  readonly #replays = new ReplayGuard(REPLAY_WINDOW_MS)
  readonly #limitedLogger: RateLimitedLogger
  readonly #now: () => number

  constructor(options: NodeAdmissionOptions) {
    this.#options = options
    this.#sessions = new NodeSessions(options.keys, options.nodeId)
    this.#limitedLogger = new RateLimitedLogger(options.logger)
    this.#now = options.now ?? Date.now
  }

  /** Rejects with a Refusal or a `StaleRunError`. */
  async identityOf(received: ReceivedCall): Promise<Identity> {
    if (this.#options.isOpen()) return UNRESTRICTED
    try {
      return await this.#identityOf(received)
    } catch (error) {
      if (error instanceof Refusal) {
        const { operation, requestId } = received.message
        this.#limitedLogger.warn('forwarded call refused', {
          reason: error.message,
          operation,
          request_id: requestId,
        })
      }
      throw error
    }
  }

  async #identityOf(received: ReceivedCall): Promise<Identity> {
    const { claims } = received.message
    if (!claims) {
      const hint = 'a server with acl { enabled = false } or without a signing key cannot call it'
      throw refusal(`it has acl { enabled = true } and accepts only calls with the assertion of a server; ${hint}`)
    }
    if (claims.audience !== this.#options.nodeId) throw refusal('the assertion is for another node')
    // The run is not secret: only a server can open a session with it.
    if (claims.audienceRun !== this.#sessions.run) throw new StaleRunError(this.#sessions.run)
    const key = await this.#sessions.serverOf(received)
    this.#checkTime(claims)
    const use = this.#replays.use(`${key} ${claims.issuerRun}`, claims.sequence)
    if (use === 'used') throw refusal('the assertion was used before')
    if (use === 'full') throw new Refusal('too_many', 'too many servers have called this host, try again later')
    return identityWith(claims.permissions)
  }

  #checkTime({ expiresAtMs, issuedAtMs }: AssertionClaims): void {
    const nowMs = this.#now()
    if (expiresAtMs - issuedAtMs > ASSERTION_TTL_MS)
      throw refusal(`the assertion is valid for more than ${ASSERTION_TTL_MS / 1000} s`)
    const aheadMs = issuedAtMs - nowMs
    if (aheadMs <= CLOCK_SKEW_MS && nowMs - expiresAtMs <= CLOCK_SKEW_MS) return
    const seconds = Math.round(Math.abs(aheadMs) / 1000)
    const where = aheadMs > 0 ? 'ahead of' : 'behind'
    const text =
      `the assertion of the server was issued ${seconds} s ${where} the clock of this host: the assertion has expired, or the ` +
      `clocks differ by more than ${CLOCK_SKEW_MS / 1000} s. Synchronize both clocks (NTP)`
    throw new Refusal('unavailable', `this host refused the call: ${text}`)
  }
}
