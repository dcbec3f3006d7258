/** A node with its own key that sends any messages: their signatures are valid and their content is chosen by the test. */
import { generateKeyPairSync } from 'node:crypto'
import type { NatsConnection } from '@nats-io/transport-node'
import {
  type AllocationDescription,
  digestOf,
  type NodeMessage,
  type NodeState,
  signNodeMessage,
} from '../../src/cluster/roster/node-messages.ts'
import { Subjects } from '../../src/cluster/nats/subjects.ts'
import { nodeOf } from './fleet-server.ts'

const subjects = new Subjects('global')

export function newNodeKey() {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  return { privateKey, publicKey: publicKey.export({ format: 'der', type: 'spki' }).subarray(-32) }
}

export class HostileNode {
  readonly nodeId: string
  readonly #bus: NatsConnection
  readonly #key: ReturnType<typeof newNodeKey>
  readonly #run = Date.now()
  #sequence = 0
  /** Calls that were sent to it, the aim of its attack. */
  readonly calls: Uint8Array[] = []

  constructor(bus: NatsConnection, nodeId: string, key = newNodeKey()) {
    this.nodeId = nodeId
    this.#bus = bus
    this.#key = key
    bus.subscribe(subjects.call(nodeId), { callback: (_error, { data }) => void this.calls.push(data) })
  }

  /** Sends a state with these allocations, with `more` in the message. */
  stateOf(allocations: readonly AllocationDescription[], meta: Record<string, string> = {}): Buffer {
    const state: NodeState = { node: nodeOf(this.nodeId, { meta }), allocations }
    return this.#signed('state', digestOf(state), state)
  }

  beat(digest = ''): Buffer {
    return this.#signed('beat', digest)
  }

  #signed(kind: 'state' | 'beat', digest: string, state?: NodeState): Buffer {
    const order = { version: 1, run: this.#run, sequence: ++this.#sequence, digest }
    const message: NodeMessage = state
      ? { kind: 'state', ...order, node: state.node, allocations: [...state.allocations] }
      : { kind: 'beat', ...order }
    return signNodeMessage(message, subjects.roster(this.nodeId, kind), this.#key)
  }

  async say(kind: 'state' | 'beat', payload: Uint8Array): Promise<void> {
    this.#bus.publish(subjects.roster(this.nodeId, kind), payload)
    await this.#bus.flush()
  }

  claim(...allocations: readonly AllocationDescription[]): Promise<void> {
    // A repeated digest would be ignored.
    return this.say('state', this.stateOf(allocations, { attempt: String(this.#sequence) }))
  }
}
