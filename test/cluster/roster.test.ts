/** What a server makes of what nodes say: whole states and beats, silence, forgeries, clocks that are wrong, restarts. */
import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { join } from 'node:path'
import { test } from 'node:test'
import {
  type AllocationDescription,
  digestOf,
  type NodeMessage,
  type NodeState,
  openMessage,
  signMessage,
} from '../../src/cluster/description.ts'
import { NO_STORE, Roster, type RosterChange, type RosterStore } from '../../src/cluster/roster.ts'
import { RosterDatabase } from '../../src/store/roster-store.ts'
import { rosterStoreIn } from '../../src/daemon-cluster.ts'
import { keepingLogger, temporaryDirectory } from '../host/host-fixture.ts'

const NODE = '6f1c0b9e-2f0a-4a51-9d0c-000000000001'
const OTHER = '6f1c0b9e-2f0a-4a51-9d0c-000000000002'
const SUBJECT = 'outpost.global.roster.x.state'

function newKey() {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  return { privateKey, publicKey: publicKey.export({ format: 'der', type: 'spki' }).subarray(-32) }
}

function allocation(id: string, over: Partial<AllocationDescription> = {}): AllocationDescription {
  const fixed = { namespace: 'default', jobId: 'web', taskGroup: 'api', createTimeMs: 1 }
  const tasks = [{ name: 'web', state: 'running' as const, failed: false }]
  return { id, name: 'web.api[0]', desiredStatus: 'run', clientStatus: 'running', ...fixed, tasks, ...over }
}

function stateOf(
  id: string,
  allocations: readonly AllocationDescription[] = [],
  meta: Record<string, string> = {},
): NodeState {
  const resources = { cpuMhz: 1000, cores: 1, memoryBytes: 1, diskBytes: 1 }
  const named = { name: 'n', datacenter: 'dc1', nodeClass: '', nodePool: 'default', version: '0.1.0' }
  return {
    node: { id, ...named, httpAddress: '127.0.0.1:4646', tls: false, attributes: {}, meta, resources },
    allocations,
  }
}

/** A node that speaks, its messages numbered. */
class Speaker {
  readonly key = newKey()
  readonly id: string
  run = 1
  sequence = 0

  constructor(id: string) {
    this.id = id
  }

  say(kind: 'state' | 'beat' | 'leave', state: NodeState) {
    const order = { version: 1, run: this.run, sequence: ++this.sequence, digest: digestOf(state) }
    const message: NodeMessage =
      kind === 'state' ? { kind, ...order, node: state.node, allocations: [...state.allocations] } : { kind, ...order }
    const opened = openMessage(signMessage(message, SUBJECT, this.key), SUBJECT)
    assert.ok(typeof opened === 'object')
    return opened
  }
}

function rosterWith(store: RosterStore = NO_STORE) {
  const clock = { monotonicMs: 0, wallMs: 1_000_000 }
  const logger = keepingLogger()
  const roster = new Roster({ store, logger, now: () => clock })
  const changes: RosterChange[] = []
  roster.listen((change) => changes.push(change))
  return { roster, clock, logger, changes }
}

test('a state registers a node and its allocations; what has changed is told once, with rising indexes', () => {
  const { roster, changes } = rosterWith()
  const node = new Speaker(NODE)
  const first = stateOf(NODE, [allocation('6f1c0b9e-2f0a-4a51-9d0c-00000000000a')])
  assert.equal(roster.take(NODE, node.say('beat', first)), 'ask')
  assert.equal(roster.take(NODE, node.say('state', first)), 'taken')
  assert.equal(roster.node(NODE)?.status, 'ready')
  assert.deepEqual(
    [...roster.allocationsOf(NODE)].map((record) => record.allocation.id),
    [first.allocations[0]?.id],
  )
  const told = changes.length
  assert.equal(roster.take(NODE, node.say('state', first)), 'taken')
  assert.equal(roster.take(NODE, node.say('beat', first)), 'taken')
  assert.equal(changes.length, told)
  const second = stateOf(NODE, [], { rack: 'r7' })
  assert.equal(roster.take(NODE, node.say('beat', second)), 'ask')
  assert.equal(roster.take(NODE, node.say('state', second)), 'taken')
  assert.equal(roster.node(NODE)?.node.meta['rack'], 'r7')
  assert.equal(roster.allocationCount, 0)
  const indexes = changes.map(({ index }) => index)
  assert.deepEqual(
    indexes,
    [...new Set(indexes)].sort((a, b) => a - b),
  )
})

test('three missed beats are down, the next one is ready again, and the record tells', () => {
  const { roster, clock } = rosterWith()
  const node = new Speaker(NODE)
  const state = stateOf(NODE)
  roster.take(NODE, node.say('state', state))
  clock.monotonicMs += 30_000
  roster.sweep()
  assert.equal(roster.node(NODE)?.status, 'ready')
  clock.monotonicMs += 1
  roster.sweep()
  assert.equal(roster.node(NODE)?.status, 'down')
  assert.equal(roster.take(NODE, node.say('beat', state)), 'taken')
  assert.equal(roster.node(NODE)?.status, 'ready')
  assert.deepEqual(
    roster.node(NODE)?.events.map(({ message }) => message),
    ['Node registered', 'Node heartbeat missed', 'Node heartbeat resumed'],
  )
  roster.take(NODE, node.say('leave', state))
  assert.equal(roster.node(NODE)?.status, 'down')
  clock.monotonicMs += 25 * 3600 * 1000
  roster.sweep()
  assert.equal(roster.node(NODE), undefined)
})

test('another key is refused, and so is another node’s name, a replay, and an allocation that is somebody’s', () => {
  const { roster, logger } = rosterWith()
  const node = new Speaker(NODE)
  const thief = new Speaker(NODE)
  const other = new Speaker(OTHER)
  const id = '6f1c0b9e-2f0a-4a51-9d0c-00000000000a'
  const state = stateOf(NODE, [allocation(id)])
  const said = node.say('state', state)
  roster.take(NODE, said)
  assert.equal(roster.take(NODE, thief.say('state', stateOf(NODE))), 'refused')
  assert.equal(logger.lines.filter(({ level }) => level === 'error').length, 1)
  assert.equal(roster.take(OTHER, other.say('state', stateOf(NODE))), 'refused')
  assert.equal(roster.take(NODE, said), 'old')
  roster.take(OTHER, other.say('state', stateOf(OTHER, [allocation(id)])))
  assert.equal(roster.allocation(id)?.nodeId, NODE)
  // A restart has a higher run and counts from one again.
  node.run = 2
  node.sequence = 0
  assert.equal(roster.take(NODE, node.say('beat', state)), 'taken')
})

test('bytes that are nothing, forged, cut or newer are told apart', () => {
  const node = new Speaker(NODE)
  const order = { version: 1, run: 1, sequence: 1, digest: 'd' }
  const whole = signMessage({ kind: 'beat', ...order }, SUBJECT, node.key)
  assert.equal(typeof openMessage(whole, SUBJECT), 'object')
  assert.equal(openMessage(whole, `${SUBJECT}.other`), 'forged')
  assert.equal(openMessage(whole.subarray(0, 50), SUBJECT), 'malformed')
  assert.equal(openMessage(whole.subarray(0, -1), SUBJECT), 'forged')
  assert.equal(openMessage(Buffer.alloc(200), SUBJECT), 'malformed')
  assert.equal(openMessage(signMessage({ kind: 'beat', ...order, version: 9 }, SUBJECT, node.key), SUBJECT), 'newer')
  const strange = { kind: 'beat', version: 1, run: 'x' } as unknown as NodeMessage
  assert.equal(openMessage(signMessage(strange, SUBJECT, node.key), SUBJECT), 'malformed')
})

test('what was known is there after a restart, and the same key is asked for', (t) => {
  const path = join(temporaryDirectory(t), 'roster.db')
  const id = '6f1c0b9e-2f0a-4a51-9d0c-00000000000a'
  const node = new Speaker(NODE)
  const first = RosterDatabase.open(path, keepingLogger())
  const before = rosterWith(rosterStoreIn(first))
  before.roster.take(NODE, node.say('state', stateOf(NODE, [allocation(id)], { rack: 'r1' })))
  first.close()
  const second = RosterDatabase.open(path, keepingLogger())
  t.after(() => second.close())
  const { roster } = rosterWith(rosterStoreIn(second))
  assert.deepEqual(roster.node(NODE), before.roster.node(NODE))
  assert.deepEqual(roster.allocation(id), before.roster.allocation(id))
  assert.ok(roster.index >= before.roster.index)
  assert.equal(roster.take(NODE, new Speaker(NODE).say('state', stateOf(NODE))), 'refused')
})
