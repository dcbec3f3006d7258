/** The roster: states and heartbeats, silence, forgeries, clock skew, restarts. */
import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { join } from 'node:path'
import { test } from 'node:test'
import {
  type AllocationDescription,
  digestOf,
  type NodeMessage,
  type NodeState,
  verifyNodeMessage,
  signNodeMessage,
} from '../../../src/cluster/roster/node-messages.ts'
import { AllocationOwners, OWNED_MAX, OWNED_PER_NODE_MAX } from '../../../src/cluster/roster/allocation-owners.ts'
import { Roster } from '../../../src/cluster/roster/roster.ts'
import { NO_STORE, type RosterChange, type RosterStore, statusOf } from '../../../src/cluster/roster/roster-records.ts'
import { hasLeft } from '../../../src/cluster/roster/node-status.ts'
import { RosterDatabase } from '../../../src/storage/store/roster-store.ts'
import { rosterStoreIn } from '../../../src/daemon/modules/cluster.ts'
import { recordingLogger } from '../../host/allocations/host-fixture.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

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
  readonly key: ReturnType<typeof newKey>
  readonly id: string
  run = 1
  sequence = 0

  constructor(id: string, key = newKey()) {
    this.id = id
    this.key = key
  }

  say(kind: 'state' | 'beat' | 'leave', state: NodeState, sentAtMs?: number) {
    const sent = sentAtMs === undefined ? {} : { sentAtMs }
    const order = { version: 1, run: this.run, sequence: ++this.sequence, digest: digestOf(state), ...sent }
    const message: NodeMessage =
      kind === 'state' ? { kind, ...order, node: state.node, allocations: [...state.allocations] } : { kind, ...order }
    const opened = verifyNodeMessage(signNodeMessage(message, SUBJECT, this.key), SUBJECT)
    assert.ok(typeof opened === 'object')
    return opened
  }
}

function rosterWith(store: RosterStore = NO_STORE) {
  const clock = { monotonicMs: 0, wallMs: 1_000_000 }
  const logger = recordingLogger()
  const roster = new Roster({ store, logger, now: () => clock })
  const changes: RosterChange[] = []
  roster.listen((change) => changes.push(change))
  return { roster, clock, logger, changes }
}

test('a state registers a node and its allocations, and each change is notified once with a rising index', () => {
  const { roster, changes } = rosterWith()
  const node = new Speaker(NODE)
  const first = stateOf(NODE, [allocation('6f1c0b9e-2f0a-4a51-9d0c-00000000000a')])
  assert.equal(roster.apply(NODE, node.say('beat', first)), 'ask')
  assert.equal(roster.apply(NODE, node.say('state', first)), 'taken')
  assert.equal(roster.node(NODE)?.status, 'ready')
  assert.deepEqual(
    [...roster.allocationsOf(NODE)].map((record) => record.allocation.id),
    [first.allocations[0]?.id],
  )
  const told = changes.length
  assert.equal(roster.apply(NODE, node.say('state', first)), 'taken')
  assert.equal(roster.apply(NODE, node.say('beat', first)), 'taken')
  assert.equal(changes.length, told)
  const second = stateOf(NODE, [], { rack: 'r7' })
  assert.equal(roster.apply(NODE, node.say('beat', second)), 'ask')
  assert.equal(roster.apply(NODE, node.say('state', second)), 'taken')
  assert.equal(roster.node(NODE)?.node.meta['rack'], 'r7')
  assert.equal(roster.allocationCount, 0)
  const indexes = changes.map(({ index }) => index)
  assert.deepEqual(
    indexes,
    [...new Set(indexes)].sort((a, b) => a - b),
  )
})

test('a node is down after three missed heartbeats and ready after the next one, as its events record', () => {
  const { roster, clock } = rosterWith()
  const node = new Speaker(NODE)
  const state = stateOf(NODE)
  roster.apply(NODE, node.say('state', state))
  clock.monotonicMs += 30_000
  roster.sweep()
  assert.equal(roster.node(NODE)?.status, 'ready')
  clock.monotonicMs += 1
  roster.sweep()
  assert.equal(roster.node(NODE)?.status, 'down')
  const isLeft = () => {
    const record = roster.node(NODE)
    return record && hasLeft(record)
  }
  assert.equal(isLeft(), false, 'missed heartbeats are not a stop')
  assert.equal(roster.apply(NODE, node.say('beat', state)), 'taken')
  assert.equal(roster.node(NODE)?.status, 'ready')
  assert.deepEqual(
    roster.node(NODE)?.events.map(({ message }) => message),
    ['Node registered', 'Node heartbeat missed', 'Node heartbeat resumed'],
  )
  roster.apply(NODE, node.say('leave', state))
  assert.equal(roster.node(NODE)?.status, 'down')
  assert.equal(isLeft(), true)
  roster.apply(NODE, node.say('beat', state))
  assert.equal(isLeft(), false)
  roster.apply(NODE, node.say('leave', state))
  clock.monotonicMs += 25 * 3600 * 1000
  roster.sweep()
  assert.equal(roster.node(NODE), undefined)
})

const [RUNNING, PENDING, ENDED] = ['a', 'b', 'c'].map((last) => `6f1c0b9e-2f0a-4a51-9d0c-00000000000${last}`)

function threeAllocations(): AllocationDescription[] {
  const statuses = ['running', 'pending', 'complete'] as const
  return [RUNNING, PENDING, ENDED].map((id, at) => allocation(String(id), { clientStatus: statuses[at] ?? 'lost' }))
}

const statusesIn = (roster: Roster) =>
  [RUNNING, PENDING, ENDED].map((id) => {
    const record = roster.allocation(String(id))
    return record && statusOf(record)
  })

test('allocations of a node that is down are unknown until it reports again, except those that have ended', () => {
  const { changes, clock, roster } = rosterWith()
  const node = new Speaker(NODE)
  const state = stateOf(NODE, threeAllocations())
  roster.apply(NODE, node.say('state', state))
  const before = roster.allocation(String(RUNNING))
  clock.monotonicMs += 31_000
  clock.wallMs += 31_000
  const from = changes.length
  roster.sweep()
  assert.deepEqual(statusesIn(roster), ['unknown', 'unknown', 'complete'])
  const record = roster.allocation(String(RUNNING))
  assert.deepEqual([record?.unknownSinceMs, record?.modifyTimeMs], [clock.wallMs, clock.wallMs])
  assert.equal(record?.createIndex, before?.createIndex)
  const told = changes.slice(from).map(({ key, type }) => `${type} ${key}`)
  const updated = [`AllocationUpdated ${RUNNING}`, `AllocationUpdated ${PENDING}`]
  assert.deepEqual(told, [...updated, `NodeEvent ${NODE}`])
  const indexes = changes.map(({ index }) => index)
  assert.deepEqual(
    indexes,
    indexes.toSorted((a, b) => a - b),
  )
  roster.apply(NODE, node.say('beat', state))
  assert.deepEqual(statusesIn(roster), ['running', 'pending', 'complete'])
  assert.equal(roster.allocation(String(RUNNING))?.unknownSinceMs, undefined)
  // What it reports while it counts as down: the new status of one, and the others unchanged.
  roster.apply(NODE, node.say('leave', state))
  const [one, ...others] = threeAllocations()
  assert.ok(one)
  roster.apply(NODE, node.say('state', stateOf(NODE, [{ ...one, clientStatus: 'failed' }, ...others])))
  assert.deepEqual(statusesIn(roster), ['failed', 'pending', 'complete'])
})

test('after a restart of the server, allocations of a node that was down are unknown', (t) => {
  const path = join(temporaryDirectory(t), 'roster.db')
  const first = RosterDatabase.open(path, recordingLogger())
  const before = rosterWith(rosterStoreIn(first))
  const node = new Speaker(NODE)
  const state = stateOf(NODE, threeAllocations())
  before.roster.apply(NODE, node.say('state', state))
  before.roster.apply(NODE, node.say('leave', state))
  first.close()
  const second = RosterDatabase.open(path, recordingLogger())
  t.after(() => second.close())
  const { roster } = rosterWith(rosterStoreIn(second))
  assert.deepEqual(statusesIn(roster), ['unknown', 'unknown', 'complete'])
  assert.equal(roster.allocation(String(RUNNING))?.unknownSinceMs, roster.node(NODE)?.statusAtMs)
  assert.ok(roster.index >= before.roster.index, 'no index is used twice')
  node.run++
  roster.apply(NODE, node.say('state', state))
  assert.deepEqual(statusesIn(roster), ['running', 'pending', 'complete'])
})

test('another key, another node’s ID, a replay, and an allocation with another owner are rejected', () => {
  const { roster, logger } = rosterWith()
  const node = new Speaker(NODE)
  const thief = new Speaker(NODE)
  const other = new Speaker(OTHER)
  const id = '6f1c0b9e-2f0a-4a51-9d0c-00000000000a'
  const state = stateOf(NODE, [allocation(id)])
  const said = node.say('state', state)
  roster.apply(NODE, said)
  assert.equal(roster.apply(NODE, thief.say('state', stateOf(NODE))), 'refused')
  assert.equal(logger.lines.filter(({ level }) => level === 'error').length, 1)
  assert.equal(roster.apply(OTHER, other.say('state', stateOf(NODE))), 'refused')
  assert.equal(roster.apply(NODE, said), 'old')
  roster.apply(OTHER, other.say('state', stateOf(OTHER, [allocation(id)])))
  assert.equal(roster.allocation(id)?.nodeId, NODE)
  // A restart has a higher run and counts from one again.
  node.run = 2
  node.sequence = 0
  assert.equal(roster.apply(NODE, node.say('beat', state)), 'taken')
})

const ALLOC = '6f1c0b9e-2f0a-4a51-9d0c-00000000000a'

test('an allocation keeps its owner while that is ready, down or removed, after collection and after a restart, until a purge', (t) => {
  const path = join(temporaryDirectory(t), 'roster.db')
  const database = RosterDatabase.open(path, recordingLogger())
  const { roster, clock } = rosterWith(rosterStoreIn(database))
  const [owner, thief] = [new Speaker(NODE), new Speaker(OTHER)]
  const held = stateOf(NODE, [allocation(ALLOC)])
  let tries = 0
  const steal = (from: Roster) => {
    const { claim } = from.rejections.counts
    const state = stateOf(OTHER, [allocation(ALLOC)], { attempt: String(++tries) })
    assert.equal(from.apply(OTHER, thief.say('state', state)), 'taken')
    return from.allocation(ALLOC)?.nodeId === OTHER ? 'stolen' : from.rejections.counts.claim - claim
  }
  roster.apply(NODE, owner.say('state', held))
  assert.equal(steal(roster), 1)
  roster.apply(NODE, owner.say('leave', held))
  assert.equal(steal(roster), 1)
  assert.equal(roster.allocation(ALLOC)?.nodeId, NODE)
  // A day of silence: the node is forgotten, its claim is not.
  clock.monotonicMs += 25 * 3600 * 1000
  roster.sweep()
  assert.equal(roster.node(NODE), undefined)
  assert.equal(steal(roster), 1)
  database.close()
  const again = RosterDatabase.open(path, recordingLogger())
  const { roster: restarted, clock: later } = rosterWith(rosterStoreIn(again))
  later.wallMs = clock.wallMs
  assert.equal(steal(restarted), 1)
  // The owner comes back, and collects it.
  restarted.apply(NODE, owner.say('state', held))
  assert.equal(restarted.allocation(ALLOC)?.nodeId, NODE)
  restarted.apply(NODE, owner.say('state', stateOf(NODE)))
  assert.equal(restarted.allocation(ALLOC), undefined)
  assert.equal(steal(restarted), 1)
  // Another key under the owner's node ID is not the owner; after a purge the next announcement is the first one.
  assert.equal(restarted.purge(NODE), true)
  const beat = thief.say('beat', stateOf(OTHER, [allocation(ALLOC)], { attempt: String(tries) }))
  assert.equal(restarted.apply(OTHER, beat), 'ask', 'the refused node is asked again')
  assert.equal(steal(restarted), 'stolen')
  again.close()
})

test('ownership of an unreported allocation ends after a week, and the owner’s key may report it with another node ID', () => {
  const { roster, clock } = rosterWith()
  const [owner, other] = [new Speaker(NODE), new Speaker(OTHER)]
  roster.apply(NODE, owner.say('state', stateOf(NODE, [allocation(ALLOC)])))
  // The same key under another ID: not while the first one is there.
  const renamed = new Speaker(OTHER, owner.key)
  roster.apply(OTHER, renamed.say('state', stateOf(OTHER, [allocation(ALLOC)])))
  assert.equal(roster.allocation(ALLOC)?.nodeId, NODE)
  roster.apply(NODE, owner.say('leave', stateOf(NODE)))
  roster.apply(OTHER, renamed.say('state', stateOf(OTHER, [allocation(ALLOC)], { attempt: '2' })))
  assert.equal(roster.allocation(ALLOC)?.nodeId, OTHER)
  roster.apply(OTHER, renamed.say('state', stateOf(OTHER)))
  assert.equal(roster.purge(OTHER), true)
  assert.equal(roster.purge(OTHER), false)

  roster.apply(NODE, owner.say('state', stateOf(NODE, [allocation(ALLOC)])))
  roster.apply(NODE, owner.say('state', stateOf(NODE)))
  const claim = () =>
    roster.apply(OTHER, other.say('state', stateOf(OTHER, [allocation(ALLOC)], { at: String(clock.wallMs) })))
  claim()
  assert.equal(roster.allocation(ALLOC), undefined)
  clock.wallMs += 7 * 24 * 3600 * 1000
  clock.monotonicMs += 61_000
  roster.sweep()
  claim()
  assert.equal(roster.allocation(ALLOC), undefined, 'not yet')
  clock.wallMs += 1
  clock.monotonicMs += 61_000
  roster.sweep()
  claim()
  assert.equal(roster.allocation(ALLOC)?.nodeId, OTHER)
})

test('an allocation that its owner reports under another node ID stays when the former node is removed', () => {
  const { roster } = rosterWith()
  const owner = new Speaker(NODE)
  const renamed = new Speaker(OTHER, owner.key)
  roster.apply(NODE, owner.say('state', stateOf(NODE, [allocation(ALLOC)])))
  roster.apply(NODE, owner.say('leave', stateOf(NODE)))
  roster.apply(OTHER, renamed.say('state', stateOf(OTHER, [allocation(ALLOC)])))
  assert.deepEqual([...roster.allocationsOf(NODE)], [])
  assert.equal(roster.purge(NODE), true)
  assert.equal(roster.allocation(ALLOC)?.nodeId, OTHER)
})

test('the clock of a removed node is not reported', () => {
  const { roster, clock } = rosterWith()
  const skewed = () => roster.clocks.skewed.map(({ id }) => id)
  for (const id of [NODE, OTHER]) {
    const node = new Speaker(id)
    roster.apply(id, node.say('state', stateOf(id), clock.wallMs + 3_600_000))
  }
  assert.deepEqual(skewed(), [NODE, OTHER])
  roster.purge(NODE)
  assert.deepEqual(skewed(), [OTHER])
  // A day of silence.
  clock.monotonicMs += 25 * 3_600_000
  roster.sweep()
  assert.deepEqual(skewed(), [])
})

test('the number of stored owners is bounded, and a node that invents allocations evicts its own entries', () => {
  const kept = new Set<string>()
  const claims = new AllocationOwners({
    saveOwner: (id) => void kept.add(id),
    removeOwner: (id) => void kept.delete(id),
  })
  claims.add('owned', { nodeId: 'honest', publicKey: 'k', sinceMs: 0 })
  for (let at = 0; at < OWNED_PER_NODE_MAX + 10; at++) {
    claims.add(`made-up-${at}`, { nodeId: 'hostile', publicKey: 'h', sinceMs: at })
  }
  assert.equal(claims.size, OWNED_PER_NODE_MAX + 1)
  assert.equal(claims.get('made-up-9'), undefined)
  for (let at = 0; claims.size < OWNED_MAX; at++) {
    claims.add(`more-${at}`, { nodeId: `hostile-${at % 40}`, publicKey: 'h', sinceMs: at })
  }
  for (let at = 0; at < 5000; at++) claims.add(`last-${at}`, { nodeId: 'hostile-40', publicKey: 'h', sinceMs: at })
  assert.ok(claims.size <= OWNED_MAX && claims.size > OWNED_MAX * 0.9)
  assert.equal(claims.size, kept.size)
  assert.equal(claims.get('owned')?.publicKey, 'k')
})

test('without a connection to NATS nodes become disconnected and never down, and their next message makes them ready', () => {
  const { roster, clock, logger } = rosterWith()
  const [node, own] = [new Speaker(NODE), new Speaker(OTHER)]
  roster.apply(NODE, node.say('state', stateOf(NODE)))
  roster.apply(OTHER, own.say('state', stateOf(OTHER)))
  const statuses = () => [roster.node(NODE)?.status, roster.node(OTHER)?.status]
  clock.monotonicMs += 10_000
  roster.markDisconnected(OTHER)
  assert.deepEqual(statuses(), ['ready', 'ready'])
  for (let second = 0; second < 3600; second++) {
    clock.monotonicMs += 1000
    roster.markDisconnected(OTHER)
  }
  assert.deepEqual(statuses(), ['disconnected', 'ready'])
  assert.equal(roster.lateHeartbeatMs(OTHER), undefined, 'the node of this process needs no heartbeat')
  assert.equal(logger.lines.filter(({ message }) => /state of nodes unknown/.test(message)).length, 1)
  // Connected again: after three more missed heartbeats it is down like any other.
  roster.resetHeartbeats()
  clock.monotonicMs += 30_000
  roster.sweep()
  assert.equal(roster.node(NODE)?.status, 'disconnected')
  roster.apply(NODE, node.say('beat', stateOf(NODE)))
  assert.equal(roster.node(NODE)?.status, 'ready')
  clock.monotonicMs += 13_000
  roster.markDisconnected(undefined)
  roster.resetHeartbeats()
  clock.monotonicMs += 31_000
  roster.sweep()
  assert.deepEqual(statuses(), ['down', 'down'])
})

test('malformed, forged, truncated and newer messages are distinguished', () => {
  const node = new Speaker(NODE)
  const order = { version: 1, run: 1, sequence: 1, digest: 'd' }
  const whole = signNodeMessage({ kind: 'beat', ...order }, SUBJECT, node.key)
  assert.equal(typeof verifyNodeMessage(whole, SUBJECT), 'object')
  assert.equal(verifyNodeMessage(whole, `${SUBJECT}.other`), 'forged')
  assert.equal(verifyNodeMessage(whole.subarray(0, 50), SUBJECT), 'malformed')
  assert.equal(verifyNodeMessage(whole.subarray(0, -1), SUBJECT), 'forged')
  assert.equal(verifyNodeMessage(Buffer.alloc(200), SUBJECT), 'malformed')
  assert.equal(
    verifyNodeMessage(signNodeMessage({ kind: 'beat', ...order, version: 9 }, SUBJECT, node.key), SUBJECT),
    'newer',
  )
  const strange = { kind: 'beat', version: 1, run: 'x' } as unknown as NodeMessage
  assert.equal(verifyNodeMessage(signNodeMessage(strange, SUBJECT, node.key), SUBJECT), 'malformed')
})

test('nodes that were disconnected before a restart are known after it', (t) => {
  const path = join(temporaryDirectory(t), 'roster.db')
  const first = RosterDatabase.open(path, recordingLogger())
  const before = rosterWith(rosterStoreIn(first))
  before.roster.apply(NODE, new Speaker(NODE).say('state', stateOf(NODE)))
  before.clock.monotonicMs += 60_000
  before.roster.markDisconnected(undefined)
  assert.equal(before.roster.node(NODE)?.status, 'disconnected')
  first.close()
  const logger = recordingLogger()
  const second = RosterDatabase.open(path, logger)
  t.after(() => second.close())
  const { roster } = rosterWith(rosterStoreIn(second))
  assert.deepEqual(roster.node(NODE), before.roster.node(NODE))
  assert.deepEqual(logger.lines, [])
  assert.equal(roster.apply(NODE, new Speaker(NODE).say('state', stateOf(NODE))), 'refused', 'another key')
})

test('the roster is restored after a restart, and requires the same keys', (t) => {
  const path = join(temporaryDirectory(t), 'roster.db')
  const id = '6f1c0b9e-2f0a-4a51-9d0c-00000000000a'
  const node = new Speaker(NODE)
  const first = RosterDatabase.open(path, recordingLogger())
  const before = rosterWith(rosterStoreIn(first))
  before.roster.apply(NODE, node.say('state', stateOf(NODE, [allocation(id)], { rack: 'r1' })))
  first.close()
  const second = RosterDatabase.open(path, recordingLogger())
  t.after(() => second.close())
  const { roster } = rosterWith(rosterStoreIn(second))
  assert.deepEqual(roster.node(NODE), before.roster.node(NODE))
  assert.deepEqual(roster.allocation(id), before.roster.allocation(id))
  assert.ok(roster.index >= before.roster.index)
  assert.equal(roster.apply(NODE, new Speaker(NODE).say('state', stateOf(NODE))), 'refused')
})
