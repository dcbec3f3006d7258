/**
 * Identity of a caller on a node, for calls that a server hands on: from the server's assertion, never from a token. Each
 * assertion is checked for its signature, the server's key, the node and its run, the time, and that it is used once; the
 * operation then judges the asserted rights itself.
 *
 * A node whose ACL is off asks for nothing: everybody may do everything there. A node whose ACL is on takes no call
 * without an assertion, so a server whose ACL is off, which asserts nothing, cannot open it.
 *
 * Clocks may differ by `CLOCK_SKEW_MS`. After a restart of the node, assertions that were made for the process before are
 * not known to have been used; they name its run, and are refused for that. The server is told the run, and asks again.
 */
import { Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { Identity } from '../../platform/operation.ts'
import { identityWith } from '../trust/asserted-rights.ts'
import {
  ASSERTION_TTL_MS,
  type Claims,
  CLOCK_SKEW_MS,
  decodeProof,
  MacKey,
  macIn,
  type Proof,
  runOf,
  sessionBytes,
  sessionNameIn,
} from '../trust/assertion.ts'
import { EVERYBODY } from '../trust/authorizer.ts'
import { RateLimitedLogger } from '../../platform/rate-limited-log.ts'
import { CurveKey } from '../trust/envelope.ts'
import { ReplayGuard } from '../trust/replay-guard.ts'
import type { ReceivedCall } from './wire.ts'

/** More than there are servers. */
const SESSIONS_MAX = 1024
const KEEP_MS = 4 * (CLOCK_SKEW_MS + ASSERTION_TTL_MS)

/** What the servers' keys are asked: see `server-trust.ts`. */
export interface KnownServerKeys {
  isServer(publicKey: string): boolean | Promise<boolean>
  verify(publicKey: string, bytes: Uint8Array, signature: Uint8Array): boolean
}

/** The assertion is good but for the run of the node: the server is to be told the run, and to ask again. */
export class OtherRun extends Error {
  readonly run: string

  constructor(run: string) {
    super('the assertion was made for another run of this node')
    this.run = run
  }
}

interface Session {
  /** NKEY of the server. */
  readonly key: string
  readonly secret: MacKey
}

/** Sessions of servers with this run of the node: see `assertion.ts`. */
class Sessions {
  readonly #keys: KnownServerKeys
  readonly #nodeId: string
  readonly #curve = new CurveKey()
  readonly #known = new Map<string, Session>()
  /** Name of this run. */
  readonly run = runOf(this.#curve.publicKey)

  constructor(keys: KnownServerKeys, nodeId: string) {
    this.#keys = keys
    this.#nodeId = nodeId
  }

  /**
   * Resolves with the key of the server that made the call, or rejects with a Refusal that says what is wrong. Sessions are
   * known by all of a proof but the MAC, as it came: what is the same in every byte need not be decoded and verified again.
   */
  async serverOf({ body, proof }: ReceivedCall): Promise<string> {
    if (!proof) throw damaged()
    const name = sessionNameIn(proof)
    const known = this.#known.get(name)
    const session = known ?? this.#begin(proof)
    if (!session.secret.isMacOf(body, macIn(proof))) throw refusal('the assertion was made for another call')
    const isServer = this.#keys.isServer(session.key)
    if (!(typeof isServer === 'boolean' ? isServer : await isServer)) {
      throw refusal('the assertion is signed with a key that is not a server’s (nats { server_keys })')
    }
    if (session !== known) this.#keep(name, session)
    return session.key
  }

  #begin(bytes: Uint8Array): Session {
    const proof = decodeProof(bytes)
    // The MAC must be the last of it, as `encodeProof` has it: what stands before it names the session.
    if (!proof || Buffer.compare(proof.mac, macIn(bytes)) !== 0) throw damaged()
    const { curve, key, signature }: Proof = proof
    if (!this.#keys.verify(key, sessionBytes(this.#nodeId, this.run, curve), signature)) {
      throw refusal('the signature of the assertion is wrong')
    }
    try {
      return { key, secret: new MacKey(this.#curve.sessionWithCaller(curve).toServer) }
    } catch {
      throw damaged()
    }
  }

  #keep(name: string, session: Session): void {
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
  readonly keys: KnownServerKeys
  /** True while this node's ACL is off. */
  readonly isOpen: () => boolean
  readonly logger: Logger
  /** The clock of this host, in milliseconds; `Date.now` unless given. */
  readonly now?: () => number
}

export class NodeAdmission {
  readonly #options: NodeAdmissionOptions
  readonly #sessions: Sessions
  readonly #replays = new ReplayGuard(KEEP_MS)
  readonly #complaints: RateLimitedLogger
  readonly #now: () => number

  constructor(options: NodeAdmissionOptions) {
    this.#options = options
    this.#sessions = new Sessions(options.keys, options.nodeId)
    this.#complaints = new RateLimitedLogger(options.logger)
    this.#now = options.now ?? Date.now
  }

  /** Rejects with a Refusal, or with an `OtherRun`. */
  async identityOf(received: ReceivedCall): Promise<Identity> {
    if (this.#options.isOpen()) return EVERYBODY
    try {
      return await this.#identityOf(received)
    } catch (error) {
      if (error instanceof Refusal) {
        const { operation, requestId } = received.message
        this.#complaints.warn('forwarded calls were refused', {
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
      const hint = 'a server whose ACL is off, or that has no key to sign with, cannot call it'
      throw refusal(`it has acl { enabled = true } and takes calls with a server’s assertion only; ${hint}`)
    }
    if (claims.audience !== this.#options.nodeId) throw refusal('the assertion was made for another node')
    // Said to anybody who asks: the run is no secret, and only a server can begin a session with it.
    if (claims.audienceRun !== this.#sessions.run) throw new OtherRun(this.#sessions.run)
    const key = await this.#sessions.serverOf(received)
    this.#checkTime(claims)
    const use = this.#replays.use(`${key} ${claims.issuerRun}`, claims.sequence)
    if (use === 'used') throw refusal('the assertion was used before')
    if (use === 'full') throw new Refusal('too_many', 'too many servers have called this host, try again later')
    return identityWith(claims.rights)
  }

  #checkTime({ expiresAtMs, issuedAtMs }: Claims): void {
    const nowMs = this.#now()
    if (expiresAtMs - issuedAtMs > ASSERTION_TTL_MS) throw refusal('the assertion lasts for longer than it may')
    const aheadMs = issuedAtMs - nowMs
    if (aheadMs <= CLOCK_SKEW_MS && nowMs - expiresAtMs <= CLOCK_SKEW_MS) return
    const seconds = Math.round(Math.abs(aheadMs) / 1000)
    const where = aheadMs > 0 ? 'ahead of' : 'behind'
    const text =
      `the server’s assertion was made ${seconds} s ${where} the clock of this host: the assertion has expired, or the ` +
      `clocks differ by more than ${CLOCK_SKEW_MS / 1000} s. Set both clocks right (NTP)`
    throw new Refusal('unavailable', `this host refused the call: ${text}`)
  }
}
