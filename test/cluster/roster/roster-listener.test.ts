/** A long state is applied in slices: other messages are applied between them, and interruptions leave a consistent roster. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import {
  ALLOCATIONS_MAX,
  type AllocationDescription,
  runSlices,
  digestOf,
  verifyInSlices,
  signNodeMessage,
  TASKS_MAX,
} from '../../../src/cluster/roster/node-messages.ts'
import { MemoryBroker } from '../../../src/cluster/nats/message-bus.ts'
import { RosterListener } from '../../../src/cluster/roster/roster-listener.ts'
import { Roster } from '../../../src/cluster/roster/roster.ts'
import { NO_STORE } from '../../../src/cluster/roster/roster-records.ts'
import { TIMINGS } from '../../../src/cluster/nats/timings.ts'
import { Subjects } from '../../../src/cluster/nats/subjects.ts'
import { eventually } from '../../helpers/eventually.ts'
import { allocationOf, idOf, nodeOf } from '../../helpers/fleet-server.ts'
import { newNodeKey } from '../../helpers/hostile-node.ts'
import { recordingLogger } from '../../host/allocations/host-fixture.ts'

const LARGE = idOf('1a46e000')
const OTHER = idOf('074e4000')
const subjects = new Subjects('global')
const many = (first: string, count = ALLOCATIONS_MAX) =>
  Array.from({ length: count }, (_, serial) => allocationOf(idOf(first, serial)))

function speaker(nodeId: string, key = newNodeKey()) {
  let sequence = 0
  return (kind: 'state' | 'leave', allocations: readonly AllocationDescription[] = []) => {
    const node = nodeOf(nodeId, { meta: { sequence: String(sequence) } })
    const state = { node, allocations: [...allocations] }
    const order = { version: 1, run: 1, sequence: ++sequence, digest: digestOf(state) }
    const subject = subjects.roster(nodeId, kind)
    const message = kind === 'state' ? { kind, ...order, ...state } : { kind, ...order }
    return { subject, payload: signNodeMessage(message, subject, key) }
  }
}

function listening(
  options: { readonly now?: () => number; readonly pauses?: { readonly isCatchingUp: boolean } } = {},
) {
  const bus = new MemoryBroker().connect()
  const roster = new Roster({ store: NO_STORE, logger: recordingLogger() })
  const listener = new RosterListener({ bus, subjects, roster, ownNodeId: undefined, ...options })
  listener.start()
  const publish = ({ subject, payload }: { subject: string; payload: Uint8Array }) => bus.publish(subject, payload)
  return { roster, listener, publish }
}

test('ten thousand new allocations are applied in slices, and messages of another node are applied meanwhile', async (t) => {
  const { listener, publish, roster } = listening()
  t.after(() => listener.stop())
  const before: number[] = []
  roster.listen(({ key }) => {
    if (key === OTHER) before.push(roster.allocationCount)
  })
  let turns = 0
  const isThere = () => roster.allocationCount === ALLOCATIONS_MAX
  const count = () => {
    turns++
    if (!isThere()) setImmediate(count)
  }
  const say = speaker(LARGE)
  publish(say('state', many('a110c000')))
  publish(say('leave'))
  setImmediate(() => publish(speaker(OTHER)('state')))
  setImmediate(count)
  await eventually(isThere, 'all allocations')
  assert.ok(turns > 20, `${turns} turns`)
  assert.equal(before.length, 1)
  assert.ok((before[0] ?? Number.NaN) < ALLOCATIONS_MAX, 'the other node does not wait for them')
  await eventually(() => roster.node(LARGE)?.status === 'down', 'what the node said next comes behind them')
})

const sum = ({ malformed = 0, refused = 0 }: Readonly<Record<string, number>>) => malformed + refused

test('a node sends so many messages and bytes of states at once and in a second, and another one is not counted', async (t) => {
  let nowMs = 0
  const { listener, publish } = listening({ now: () => nowMs })
  t.after(() => listener.stop())
  const { counts } = listener
  const refusedOf = async (send: () => void, count: number) => {
    const before = { ...counts }
    for (let at = 0; at < count; at++) send()
    await eventually(() => sum(counts) - sum(before) === count, 'all are counted')
    return (counts['refused'] ?? 0) - (before['refused'] ?? 0)
  }
  const beat = (nodeId: string) => () =>
    publish({ subject: subjects.roster(nodeId, 'beat'), payload: Buffer.from('no message') })
  assert.equal(await refusedOf(beat(LARGE), 70), 10)
  assert.equal(await refusedOf(beat(OTHER), 60), 0)
  nowMs += 1000
  assert.equal(await refusedOf(beat(LARGE), 7), 2)
  nowMs += 60_000
  const state = Buffer.alloc(8 << 20)
  assert.equal(await refusedOf(() => publish({ subject: subjects.roster(LARGE, 'state'), payload: state }), 6), 2)
})

test('long states that were taken leave space for those of other nodes', async (t) => {
  const { listener, publish } = listening()
  t.after(() => listener.stop())
  const { counts } = listener
  const payload = Buffer.alloc(8 << 20)
  for (let node = 0; node < 12; node++) {
    publish({ subject: subjects.roster(idOf('1a46e000', node), 'state'), payload })
    await eventually(() => (counts['malformed'] ?? 0) + (counts['refused'] ?? 0) > node, 'it is counted')
    await new Promise((resolve) => setImmediate(resolve))
  }
  assert.deepEqual([counts['malformed'], counts['refused']], [12, 0])
})

test('of the states that arrive meanwhile the newest is applied, and removed allocations are deleted in slices', async (t) => {
  const { listener, publish, roster } = listening()
  t.after(() => listener.stop())
  const say = speaker(LARGE)
  let added = 0
  roster.listen(({ type }) => void (type === 'AllocationUpdated' && added++))
  for (const allocations of [many('a1100000'), many('a1110000'), many('a1120000', 3)])
    publish(say('state', allocations))
  await eventually(() => roster.allocationCount === 3 && listener.counts['taken'] === 2, 'the newest state')
  assert.equal(added, ALLOCATIONS_MAX + 3)
  assert.equal(listener.counts['old'], 1)
})

test('states that are replaced by newer ones leave space for those of other nodes', async (t) => {
  const { listener, publish } = listening()
  t.after(() => listener.stop())
  const { counts } = listener
  const payload = Buffer.alloc(8 << 20)
  // More than all nodes together may have waiting.
  for (let node = 0; node < 5; node++) {
    const id = idOf('1a46e000', node)
    publish(speaker(id)('state', many(`a11${node}0000`, 1000)))
    for (let state = 0; state < 3; state++) publish({ subject: subjects.roster(id, 'state'), payload })
    await eventually(() => sum(counts) > node, 'the newest of them is verified')
  }
  publish({ subject: subjects.roster(OTHER, 'state'), payload })
  await eventually(() => sum(counts) > 5, 'it is counted')
  assert.deepEqual(counts, { taken: 5, old: 10, superseded: 0, refused: 0, malformed: 6 })
})

test('a large state that is replaced by a small one leaves its space for those of other nodes', async (t) => {
  const { listener, publish } = listening()
  t.after(() => listener.stop())
  const { counts } = listener
  const payload = Buffer.alloc(8 << 20)
  // More than all nodes together may have waiting.
  for (let node = 0; node < 9; node++) {
    const id = idOf('1a46e000', node)
    publish(speaker(id)('state', many(`a11${node}0000`, 1000)))
    for (const state of [payload, Buffer.alloc(8)]) publish({ subject: subjects.roster(id, 'state'), payload: state })
    await eventually(() => sum(counts) > node, 'the small one is verified')
  }
  publish({ subject: subjects.roster(OTHER, 'state'), payload })
  await eventually(() => sum(counts) > 9, 'it is counted')
  assert.deepEqual(counts, { taken: 9, old: 9, superseded: 0, refused: 0, malformed: 10 })
})

test('a node that is purged between two slices leaves no allocation, and registers again completely', () => {
  const roster = new Roster({ store: NO_STORE, logger: recordingLogger() })
  const say = speaker(LARGE)
  const opened = () => {
    const { payload, subject } = say('state', many('a110c000', 100))
    const said = runSlices(verifyInSlices(payload, subject))
    return typeof said === 'string' ? assert.fail(said) : said
  }
  const slices = roster.applyInSlices(LARGE, opened())
  for (let at = 0; at < 50; at++) slices.next()
  assert.ok(roster.allocationCount > 40 && roster.allocationCount < 60)
  assert.equal(roster.purge(LARGE), true)
  assert.equal(runSlices(slices), 'taken')
  assert.equal(roster.allocationCount, 0)
  assert.equal(roster.node(LARGE), undefined)
  assert.equal(roster.apply(LARGE, opened()), 'taken')
  assert.equal(roster.allocationCount, 100)
})

test('a node that is purged while its first state after a stop is applied is not stored again', () => {
  const stored = new Set<string>()
  const store = {
    ...NO_STORE,
    saveNode: (id: string) => void stored.add(id),
    removeNode: (id: string) => void stored.delete(id),
  }
  const roster = new Roster({ store, logger: recordingLogger() })
  const say = speaker(LARGE)
  const opened = (kind: 'state' | 'leave', count: number) => {
    const { payload, subject } = say(kind, many('a110c000', count))
    const said = runSlices(verifyInSlices(payload, subject))
    return typeof said === 'string' ? assert.fail(said) : said
  }
  roster.apply(LARGE, opened('state', 10))
  roster.apply(LARGE, opened('leave', 0))
  assert.equal(roster.node(LARGE)?.status, 'down')
  const slices = roster.applyInSlices(LARGE, opened('state', 100))
  for (let at = 0; at < 50; at++) slices.next()
  roster.purge(LARGE)
  const changes: string[] = []
  roster.listen(({ type }) => void changes.push(type))
  assert.equal(runSlices(slices), 'taken')
  assert.deepEqual([[...stored], changes], [[], []])
})

test('a state with too many tasks in an allocation is rejected', () => {
  const tasks = Array.from({ length: TASKS_MAX + 1 }, () => ({ name: 't', state: 'running' as const, failed: false }))
  const { payload, subject } = speaker(LARGE)('state', [allocationOf(idOf('a110c000'), { tasks })])
  assert.equal(runSlices(verifyInSlices(payload, subject)), 'malformed')
})

test('short messages of a node above its allowance are dropped, and those of another node are accepted', async (t) => {
  const { listener, publish, roster } = listening({ now: () => 0 })
  t.after(() => listener.stop())
  const say = speaker(LARGE)
  for (let count = 0; count < 100; count++) publish(say('leave'))
  publish(speaker(OTHER)('state'))
  await eventually(() => roster.node(OTHER) !== undefined, 'the other node')
  const { old = 0, refused = 0 } = listener.counts
  assert.deepEqual([old, refused], [60, 40])
})

test('no node is marked as down while heartbeats wait that arrived when this process did not run', async (t) => {
  const pauses = { isCatchingUp: true }
  const { listener, roster } = listening({ pauses })
  t.after(() => listener.stop())
  const { mock } = t.mock.method(roster, 'sweep')
  await delay(1.5 * TIMINGS.rosterSweepMs)
  assert.equal(mock.callCount(), 0)
  pauses.isCatchingUp = false
  await eventually(() => mock.callCount() > 0, 'nodes are looked at again')
})
