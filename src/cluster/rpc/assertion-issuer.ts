/**
 * Calls of a server to nodes: each carries an assertion that this server authenticates, in place of the caller's token
 * (docs/decisions/028). A server with ACL off knows nothing about its callers and asserts nothing: only nodes with ACL off
 * accept its calls.
 */
import type { KeyObject } from 'node:crypto'
import type { Identity } from '../../platform/operation.ts'
import { assertPermissions } from '../trust/asserted-permissions.ts'
import type { SigningKey } from '../nats/nkey.ts'
import {
  ASSERTION_TTL_MS,
  type AssertionClaims,
  authenticate,
  encodeProof,
  newRun,
  sessionBytes,
} from '../trust/assertion.ts'
import { UNRESTRICTED } from '../trust/authorizer.ts'
import { CurveKey } from '../trust/envelope.ts'
import type { CallMessage } from './call-message.ts'
import { encode, encodeCall } from './call-wire.ts'

/** More than a cluster has. The next call to an evicted node costs a second message. */
const NODES_MAX = 20_000

/** The target of a call to a node, and its caller. */
export interface NodeRecipient {
  readonly nodeId: string
  readonly identity: Identity
  /** The namespaces that the call concerns: permissions in others are not asserted. */
  readonly namespaces?: readonly string[]
}

export interface AssertionIssuerOptions {
  /** The signing key of this server; undefined if it has none. */
  readonly key: () => SigningKey | undefined
  /** Wall clock in milliseconds. Default: `Date.now`. */
  readonly now?: () => number
}

/** A session with a run of a node (`assertion.ts`). */
interface IssuerSession {
  readonly key: SigningKey
  /** The proof, with the MAC of the last call. */
  readonly proof: Buffer
  readonly secret: KeyObject
}

interface KnownNode {
  /** Run of the node's process; empty until the node has reported it. */
  readonly run: string
  readonly issuerRun: string
  sequence: number
  session: IssuerSession | undefined
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
   * Encodes a call to a node. Until the node has reported the run of its process, the message has no proof: a node with ACL off
   * accepts it, any other one reports its run.
   */
  message(to: NodeRecipient, message: CallMessage): Uint8Array {
    const key = to.identity === UNRESTRICTED ? undefined : this.#options.key()
    if (!key) return encodeCall(encode(message))
    const node = this.#nodes.get(to.nodeId) ?? this.#addNode(to.nodeId, '')
    const body = encode({ ...message, claims: this.#claims(to, node) })
    const session = this.#sessionWith(to.nodeId, node, key)
    if (!session) return encodeCall(body)
    return encodeCall(body, authenticate(session.secret, body, session.proof))
  }

  /** The node has reported the run of its process. */
  setRun(nodeId: string, run: string): void {
    if (this.#nodes.get(nodeId)?.run !== run) this.#addNode(nodeId, run)
  }

  /** Undefined while the run is unknown, and for a run that is not a valid key. */
  #sessionWith(nodeId: string, node: KnownNode, key: SigningKey): IssuerSession | undefined {
    if (node.run === '' || node.session?.key === key) return node.session
    const curve = this.#curve.publicKey
    try {
      const { toServer: secret } = this.#curve.sessionWithServer(Buffer.from(node.run, 'base64url'))
      const signature = Uint8Array.from(key.sign(sessionBytes(nodeId, node.run, curve)))
      node.session = { key, proof: encodeProof({ key: key.publicKey, signature, curve }), secret }
    } catch {
      node.session = undefined
    }
    return node.session
  }

  #claims({ identity, namespaces = [], nodeId }: NodeRecipient, node: KnownNode): AssertionClaims {
    const issuedAtMs = Math.round(this.#now())
    return {
      audience: nodeId,
      audienceRun: node.run,
      issuerRun: node.issuerRun,
      sequence: ++node.sequence,
      issuedAtMs,
      expiresAtMs: issuedAtMs + ASSERTION_TTL_MS,
      permissions: assertPermissions(identity, namespaces),
    }
  }

  #addNode(nodeId: string, run: string): KnownNode {
    const node = { run, issuerRun: newRun(), sequence: 0, session: undefined }
    this.#nodes.delete(nodeId)
    this.#nodes.set(nodeId, node)
    const [oldest] = this.#nodes.keys()
    if (this.#nodes.size > NODES_MAX && oldest !== undefined) this.#nodes.delete(oldest)
    return node
  }
}
