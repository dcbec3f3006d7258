/**
 * Calls of a server to nodes: each goes out with an assertion that this server signs, in place of the caller's token
 * (docs/decisions/028). A server whose ACL is off knows nothing of its callers and asserts nothing: only a node whose ACL
 * is off as well takes such a call.
 */
import type { Identity } from '../kit/operation.ts'
import { rightsOf } from './asserted-rights.ts'
import { ASSERTION_TTL_MS, CallSigner, type Claims, newRun, type ServerKey } from './assertion.ts'
import { EVERYBODY } from './authorizer.ts'
import { type CallMessage, encode, encodeCall } from './wire.ts'

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

interface KnownNode {
  /** Of the node's process; empty until the node has said it. */
  readonly run: string
  readonly issuerRun: string
  sequence: number
}

export class AssertionIssuer {
  readonly #options: AssertionIssuerOptions
  readonly #signer = new CallSigner()
  readonly #nodes = new Map<string, KnownNode>()
  readonly #now: () => number

  constructor(options: AssertionIssuerOptions) {
    this.#options = options
    this.#now = options.now ?? Date.now
  }

  /** `publish` gets the message: at once where nothing is asserted, else at the end of this turn. */
  send(to: NodeRecipient, message: CallMessage, publish: (bytes: Uint8Array) => void): void {
    const key = to.identity === EVERYBODY ? undefined : this.#options.key()
    if (!key) return publish(encodeCall(encode(message)))
    const body = encode({ ...message, claims: this.#claims(to) })
    this.#signer.sign(key, body, (proof) => publish(encodeCall(body, proof)))
  }

  /** The node has said which run of its process takes calls. */
  learn(nodeId: string, run: string): void {
    this.#keep(nodeId, run)
  }

  #claims({ identity, namespaces = [], nodeId }: NodeRecipient): Claims {
    const node = this.#nodes.get(nodeId) ?? this.#keep(nodeId, '')
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
    const node = { run, issuerRun: newRun(), sequence: 0 }
    this.#nodes.delete(nodeId)
    this.#nodes.set(nodeId, node)
    const [oldest] = this.#nodes.keys()
    if (this.#nodes.size > NODES_MAX && oldest !== undefined) this.#nodes.delete(oldest)
    return node
  }
}
