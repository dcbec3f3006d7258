/**
 * Calls of a server to nodes: each goes out with an assertion that this server signs, in place of the caller's token
 * (docs/decisions/028). A server whose ACL is off knows nothing of its callers and asserts nothing: only a node whose ACL
 * is off as well takes such a call.
 */
import type { Identity } from '../../platform/operation.ts'
import { rightsOf } from '../trust/asserted-rights.ts'
import {
  ASSERTION_TTL_MS,
  type Claims,
  MacKey,
  newRun,
  proofWithoutMac,
  type ServerKey,
  sessionBytes,
} from '../trust/assertion.ts'
import { EVERYBODY } from '../trust/authorizer.ts'
import { CurveKey } from '../trust/envelope.ts'
import type { CallMessage } from './call-message.ts'
import { encode, encodeCall } from './wire.ts'

/** More than a cluster has; what is forgotten costs a second message to the node. */
const NODES_MAX = 20_000

/** Who is called, and for whom. */
export interface NodeRecipient {
  readonly nodeId: string
  readonly identity: Identity
  /** The namespaces that the call is about: rights in others are not asserted. */
  readonly namespaces?: readonly string[]
}

export interface AssertionIssuerOptions {
  /** This server's key; undefined where it has none to sign with. */
  readonly key: () => ServerKey | undefined
  /** The clock of this host, in milliseconds; `Date.now` unless given. */
  readonly now?: () => number
}

/** What calls to a run of a node are proved with. */
interface Session {
  readonly key: ServerKey
  /** Of the call that was made last. */
  readonly proof: Buffer
  readonly secret: MacKey
}

interface KnownNode {
  /** Of the node's process; empty until the node has said it. */
  readonly run: string
  readonly issuerRun: string
  sequence: number
  session: Session | undefined
}

export class AssertionIssuer {
  readonly #options: AssertionIssuerOptions
  readonly #curve = new CurveKey()
  readonly #nodes = new Map<string, KnownNode>()
  readonly #now: () => number

  constructor(options: AssertionIssuerOptions) {
    this.#options = options
    this.#now = options.now ?? Date.now
  }

  /**
   * The message for the node. While the node has not said which run of its process takes calls, it is without a proof: a
   * node whose ACL is off takes it so, any other says its run.
   */
  message(to: NodeRecipient, message: CallMessage): Uint8Array {
    const key = to.identity === EVERYBODY ? undefined : this.#options.key()
    if (!key) return encodeCall(encode(message))
    const node = this.#nodes.get(to.nodeId) ?? this.#keep(to.nodeId, '')
    const body = encode({ ...message, claims: this.#claims(to, node) })
    const session = this.#sessionWith(to.nodeId, node, key)
    if (!session) return encodeCall(body)
    return encodeCall(body, session.secret.prove(body, session.proof))
  }

  /** The node has said which run of its process takes calls. */
  learn(nodeId: string, run: string): void {
    if (this.#nodes.get(nodeId)?.run !== run) this.#keep(nodeId, run)
  }

  /** Undefined while the run is unknown, or is no key. */
  #sessionWith(nodeId: string, node: KnownNode, key: ServerKey): Session | undefined {
    if (node.run === '' || node.session?.key === key) return node.session
    const curve = this.#curve.publicKey
    try {
      const secret = new MacKey(this.#curve.sessionWithServer(Buffer.from(node.run, 'base64url')).toServer)
      const signature = Uint8Array.from(key.sign(sessionBytes(nodeId, node.run, curve)))
      node.session = { key, proof: proofWithoutMac({ key: key.publicKey, signature, curve }), secret }
    } catch {
      node.session = undefined
    }
    return node.session
  }

  #claims({ identity, namespaces = [], nodeId }: NodeRecipient, node: KnownNode): Claims {
    const issuedAtMs = Math.round(this.#now())
    return {
      audience: nodeId,
      audienceRun: node.run,
      issuerRun: node.issuerRun,
      sequence: ++node.sequence,
      issuedAtMs,
      expiresAtMs: issuedAtMs + ASSERTION_TTL_MS,
      rights: rightsOf(identity, namespaces),
    }
  }

  #keep(nodeId: string, run: string): KnownNode {
    const node = { run, issuerRun: newRun(), sequence: 0, session: undefined }
    this.#nodes.delete(nodeId)
    this.#nodes.set(nodeId, node)
    const [oldest] = this.#nodes.keys()
    if (this.#nodes.size > NODES_MAX && oldest !== undefined) this.#nodes.delete(oldest)
    return node
  }
}
