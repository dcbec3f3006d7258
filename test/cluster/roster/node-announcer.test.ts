/** Two processes with one node ID. */
import '../../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { createPublicKey, generateKeyPairSync } from 'node:crypto'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { NodeAnnouncer } from '../../../src/cluster/roster/node-announcer.ts'
import { MemoryBroker } from '../../../src/cluster/nats/message-bus.ts'
import { RosterListener } from '../../../src/cluster/roster/roster-listener.ts'
import { Roster } from '../../../src/cluster/roster/roster.ts'
import { NO_STORE } from '../../../src/cluster/roster/roster-records.ts'
import { Subjects } from '../../../src/cluster/nats/subjects.ts'
import { TIMINGS } from '../../../src/cluster/nats/timings.ts'
import { recordingLogger } from '../../host/allocations/host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'

const NODE = '6f1c0b9e-2f0a-4a51-9d0c-0a1b2c3d4e5f'
function newKey() {
  const { privateKey } = generateKeyPairSync('ed25519')
  const publicKey = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).subarray(-32)
  return { privateKey, publicKey }
}

function worldFor(t: TestContext) {
  const broker = new MemoryBroker()
  const subjects = new Subjects('global')
  const clock = { monotonicMs: 0, wallMs: 0 }
  const roster = new Roster({ store: NO_STORE, logger: recordingLogger(), now: () => clock })
  const listener = new RosterListener({ bus: broker.connect(), subjects, roster, ownNodeId: undefined })
  listener.start()
  t.after(() => listener.stop())
  const speak = (key: ReturnType<typeof newKey>, run: number, name: string) => {
    const logger = recordingLogger()
    const resources = { cpuMhz: 0, cores: 1, memoryBytes: 0, diskBytes: 0 }
    const texts = { id: NODE, name, datacenter: '', nodeClass: '', nodePool: '', version: '', httpAddress: '' }
    const announcer = new NodeAnnouncer({
      bus: broker.connect(),
      subjects,
      nodeId: NODE,
      key,
      nextRun: (above) => Math.max(run, above + 1),
      state: () => ({ node: { ...texts, tls: false, attributes: {}, meta: {}, resources }, allocations: [] }),
      logger,
    })
    announcer.start()
    t.after(() => announcer.stop())
    return { announcer, errors: () => logger.lines.filter(({ level }) => level === 'error') }
  }
  return { roster, clock, speak, nameNow: () => roster.node(NODE)?.node.name }
}

test('of two processes with one key the later run owns the node ID, and the earlier one does after the later has left', async (t) => {
  const { speak, nameNow } = worldFor(t)
  const key = newKey()
  const first = speak(key, 100, 'first')
  await eventually(() => nameNow() === 'first')
  const second = speak(key, 200, 'second')
  await eventually(() => nameNow() === 'second')
  first.announcer.changed()
  await eventually(() => first.announcer.isSuperseded)
  assert.equal(second.announcer.isSuperseded, false)
  assert.equal(nameNow(), 'second')
  assert.equal(first.errors().length, 1)
  second.announcer.stop()
  await eventually(() => {
    first.announcer.changed()
    return nameNow() === 'first' && !first.announcer.isSuperseded
  })
})

test('of two processes with two keys the first registered key owns the node ID, for any order of their starts', async (t) => {
  const { speak, nameNow } = worldFor(t)
  const first = speak(newKey(), 100, 'first')
  await eventually(() => nameNow() === 'first')
  const second = speak(newKey(), 200, 'second')
  await eventually(() => second.announcer.isSuperseded)
  assert.equal(first.announcer.isSuperseded, false)
  assert.equal(nameNow(), 'first')
  assert.match(String(second.errors()[0]?.fields['reason']), /has registered the node ID with another key/)
})

test('a stopped node sends no state that was due, so it stays down', async (t) => {
  const { roster, speak, nameNow } = worldFor(t)
  const { announcer } = speak(newKey(), 100, 'first')
  await eventually(() => nameNow() === 'first')
  announcer.changed()
  announcer.stop()
  await eventually(() => roster.node(NODE)?.status === 'down')
  await sleep(2 * TIMINGS.stateIntervalMs)
  assert.equal(roster.node(NODE)?.status, 'down')
})
