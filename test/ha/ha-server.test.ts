/** Members over a real JetStream: one is active, the others apply its commits and take over. */
import '../helpers/short-ha-timings.ts'
import assert from 'node:assert/strict'
import { cpSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { jetstreamManager } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import { HaSubjects } from '../../src/cluster/nats/ha-subjects.ts'
import { TIMINGS } from '../../src/cluster/nats/timings.ts'
import { packr } from '../../src/cluster/nats/message-pack.ts'
import { requestActiveRows, serveActiveRows } from '../../src/ha/active-rows.ts'
import { MessageAssembler, samePosition } from '../../src/ha/stream/commit-message.ts'
import { CommitStream, PublishRefused } from '../../src/ha/stream/commit-stream.ts'
import { StoreError } from '../../src/storage/sqlite/store-error.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { eventually } from '../helpers/eventually.ts'
import { HaTestMember, putOf, startJetStream } from '../helpers/ha-members.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

/** A core is initialized at the first member: it leads, writes the first entry, and steps down. */
async function initialized(member: HaTestMember): Promise<void> {
  await eventually(() => member.server.phase === 'standby')
  await member.server.acquireForInitialization()
  await member.put('core/keyring', 'ring')
  await member.server.release('initialized')
}

test('one member is active, the other applies its commits, and takes over after a step-down', async (t) => {
  const nats = await startJetStream(t)
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  const b = await HaTestMember.start(t, nats, 'b')
  await b.has('core/keyring', 'ring')
  assert.equal(b.store.clusterId, a.store.clusterId)
  await Promise.all([a.put('x', '1'), a.put('y', '2')])
  await b.has('y', '2')
  assert.ok(samePosition(b.store.position(), a.store.position()))
  await assert.rejects(
    async () => b.put('z', '1'),
    (error) => error instanceof StoreError && error.kind === 'standby',
  )
  assert.equal(b.server.isServing, false)

  a.server.requestStepDown()
  await a.server.stepDownIfRequested()
  assert.deepEqual([a.server.isServing, a.core.isOpen], [false, false])
  await b.active()
  await b.put('x', '3')
  await a.has('x', '3')
  assert.ok(samePosition(a.store.position(), b.store.position()))
})

test('a member that has applied the whole stream waits for the next message, without errors', async (t) => {
  const nats = await startJetStream(t)
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  const b = await HaTestMember.start(t, nats, 'b')
  await b.has('core/keyring', 'ring')
  const lines = b.lines.length
  // Longer than the pause after an error.
  await sleep(1200)
  await a.put('x', '1')
  await b.has('x', '1')
  assert.deepEqual(
    b.lines.slice(lines).filter(({ message }) => message.includes('failed')),
    [],
  )
})

test('a member without NATS stops serving before another one is active, and its commit has an unknown outcome', async (t) => {
  const nats = await startJetStream(t)
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  const b = await HaTestMember.start(t, nats, 'b')
  await b.has('core/keyring', 'ring')

  // Both are asked in one turn, whenever the other one may have become active.
  let overlaps = 0
  b.server.onChange(() => (overlaps += Number(a.server.isServing && b.server.isServing)))
  a.isCutOff = true
  await a.connection?.close()
  const late = a.put('x', 'late')
  late.catch(() => undefined)
  await b.active()
  assert.deepEqual([overlaps, a.server.isServing], [0, false])
  await b.put('x', 'new')
  assert.equal(b.read('x'), 'new')
  await a.server.stop()
  await assert.rejects(late, (error) => error instanceof StoreError && error.kind === 'standby')
})

test('members report a lost member, its return, and the time of the newest snapshot', async (t) => {
  const nats = await startJetStream(t)
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  const b = await HaTestMember.start(t, nats, 'b')
  await b.has('core/keyring', 'ring')
  const lost = () => a.server.lostMembers.map(({ name }) => name)
  const logged = () => a.lines.filter(({ message }) => message.startsWith('HA member')).map(({ message }) => message)
  b.snapshotAtMs = 1234
  await eventually(() => a.server.newestSnapshotMs === 1234)
  assert.deepEqual([lost(), logged()], [[], []])

  await b.end()
  await eventually(() => lost().length > 0)
  assert.deepEqual([lost(), logged()], [['b'], ['HA member lost']])
  assert.equal(a.server.newestSnapshotMs, 1234, 'a lost member has saved the snapshot')
  const returned = await HaTestMember.start(t, nats, 'b')
  await eventually(() => lost().length === 0)
  assert.deepEqual(logged(), ['HA member lost', 'HA member returned'])
  assert.deepEqual(a.server.sealedMembers, [])
  returned.core.state = 'sealed'
  await eventually(() => a.server.sealedMembers.map(({ name }) => name).join() === 'b')
  await returned.end()
  await eventually(() => lost().length > 0)
  await a.server.removeMember('b')
  await eventually(() => logged().at(-1) === 'HA member removed')
  assert.deepEqual(lost(), [])
})

test('NATS without a majority is a fault of each member, which ends with it', async (t) => {
  const nats = await startJetStream(t)
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  const b = await HaTestMember.start(t, nats, 'b')
  await b.has('core/keyring', 'ring')
  await eventually(() => b.server.lease?.isHolderAlive)
  nats.signal('SIGSTOP')
  await eventually(() => !a.server.isServing && !b.server.lease?.isHolderAlive)
  for (const { server } of [a, b]) {
    await eventually(() => server.trouble?.includes('check that a majority of the NATS servers runs'))
  }
  nats.signal('SIGCONT')
  await eventually(() => a.server.isServing || b.server.isServing)
  await eventually(() => a.server.trouble === undefined && b.server.trouble === undefined)
})

test('the stream refuses a group of an earlier term, which ends the activity of its server', async (t) => {
  const nats = await startJetStream(t)
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  // Another server publishes, as a new active one does.
  await a.connection?.request('outpost.global.ha.commits', new Uint8Array([1]))
  await assert.rejects(a.put('x', '1'), (error) => error instanceof StoreError && error.kind === 'standby')
  await eventually(() => !a.core.isOpen)
  assert.equal(a.read('x'), undefined)
  // No other server has the lease: it expires, and this one acquires it again.
  await a.active()
  await a.put('x', '2')
})

test('a message whose acknowledgement was lost is stored once, and its server recognizes it', async (t) => {
  const nats = await startJetStream(t)
  const connection = await connect({ servers: [nats.url], inboxPrefix: 'outpost.global.ha.inbox' })
  t.after(() => connection.close())
  const stream = await CommitStream.open(connection, 'global', 1)
  const { signal } = new AbortController()
  const [part, other] = ['id.0', 'other.0'].map((id) => {
    const payload = packr.pack({ format: 1, id: id.slice(0, -2), part: 0, parts: 1, bytes: new Uint8Array() })
    return { id, payload }
  })
  assert.equal(await stream.publish(required(part), 0, signal), 1)
  assert.equal(await stream.publish(required(part), 0, signal), 1)
  await assert.rejects(stream.publish(required(other), 0, signal), PublishRefused)
  assert.equal((await stream.bounds()).last, 1)
})

test('a stream that was deleted and created again is not the one that the members have joined', async (t) => {
  const nats = await startJetStream(t)
  const connection = await connect({ servers: [nats.url], inboxPrefix: 'outpost.global.ha.inbox' })
  t.after(() => connection.close())
  const stream = await CommitStream.open(connection, 'global', 1)
  const manager = await jetstreamManager(connection)
  await manager.streams.delete(stream.name)
  const again = await CommitStream.open(connection, 'global', 1)
  assert.notEqual(again.identity, stream.identity)
  await assert.rejects(stream.bounds(), /was deleted and created again/)
})

test('a stream from which messages can be deleted is refused', async (t) => {
  const nats = await startJetStream(t)
  const connection = await connect({ servers: [nats.url], inboxPrefix: 'outpost.global.ha.inbox' })
  t.after(() => connection.close())
  const manager = await jetstreamManager(connection)
  const { commits, commitStream: name } = new HaSubjects('global')
  for (const denied of [{ deny_delete: true }, { deny_purge: true }]) {
    await manager.streams.add({ name, subjects: [commits], ...denied })
    await assert.rejects(CommitStream.open(connection, 'global', 1), /it allows the deletion of messages/)
    await manager.streams.delete(name)
  }
})

test('only an active server answers the question for its rows', async (t) => {
  const nats = await startJetStream(t)
  const connection = await connect({ servers: [nats.url], inboxPrefix: 'outpost.global.ha.inbox' })
  t.after(() => connection.close())
  const served = { connection, region: 'global', rows: () => ({ newest: 2, visible: 1 }) }
  serveActiveRows({ ...served, serverId: 'active', isServing: () => true })
  // Its lease has run out.
  serveActiveRows({ ...served, serverId: 'paused', isServing: () => false })
  assert.deepEqual(await requestActiveRows(connection, 'global', 'active'), { newest: 2, visible: 1 })
  assert.equal(await requestActiveRows(connection, 'global', 'paused'), undefined)
})

test('a server with entries enables high availability: the stream starts from them, and a new member copies them', async (t) => {
  const nats = await startJetStream(t)
  const path = join(temporaryDirectory(t), 'secrets.db')
  const alone = await SqliteStore.open(path)
  for (let at = 0; at < 20; at++) await alone.commit(putOf(`entry/${at}`, `value ${at}`))
  const before = alone.position()
  await alone.close()

  const a = await HaTestMember.start(t, nats, 'a', path)
  await a.active()
  assert.equal(a.store.position().sequence, before.sequence)
  const b = await HaTestMember.start(t, nats, 'b')
  await b.has('entry/19', 'value 19')
  await a.put('entry/0', 'changed')
  await b.has('entry/0', 'changed')
  assert.ok(samePosition(b.store.position(), a.store.position()))
  await eventually(() => b.store.isWhole)
})

test('a batch that is larger than a message of NATS is stored in parts', async (t) => {
  const nats = await startJetStream(t)
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  const b = await HaTestMember.start(t, nats, 'b')
  const large = 'x'.repeat(3 << 20)
  await a.put('large', large)
  await b.has('large', large)
  assert.equal(b.store.member.streamMark?.position, a.store.member.streamMark?.position)
})

test('a member that was away too long copies the entries that differ, and deletions with them', async (t) => {
  const nats = await startJetStream(t)
  const path = join(temporaryDirectory(t), 'secrets.db')
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  const b = await HaTestMember.start(t, nats, 'b', path)
  await a.put('gone', '1')
  await b.has('gone', '1')
  await b.end()
  await a.store.commit({ puts: [], deletes: ['gone'] })
  for (let at = 0; at < 30; at++) await a.put('x', String(at))
  // As a trim does, without the messages that it retains.
  const manager = await jetstreamManager(required(a.connection))
  await manager.streams.update('OUTPOST_global_COMMITS', { max_msgs: 5 })
  const again = await HaTestMember.start(t, nats, 'b', path)
  await again.has('x', '29')
  await eventually(() => again.store.isWhole && again.store.get('gone') === undefined)
  assert.ok(samePosition(again.store.position(), a.store.position()))
  await a.put('x', 'later')
  await again.has('x', 'later')
})

test('a server with commits that are not in the stream does not join, and keeps them', async (t) => {
  const nats = await startJetStream(t)
  const path = join(temporaryDirectory(t), 'secrets.db')
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  const b = await HaTestMember.start(t, nats, 'b', path)
  await b.has('core/keyring', 'ring')
  await b.end()
  const alone = await SqliteStore.open(path)
  await alone.commit(putOf('only/here', '1'))
  await alone.close()
  const again = await HaTestMember.start(t, nats, 'b', path)
  await eventually(() => again.server.trouble?.includes('1 commits that are not in the commit stream'))
  assert.equal(again.read('only/here'), '1')
  await a.put('x', '1')
  assert.equal(again.read('x'), undefined)
})

test('messages that NATS lost are a fault once its answer does not change, and no member continues the stream', async (t) => {
  const directory = join(temporaryDirectory(t), 'jetstream')
  const nats = await startJetStream(t, {}, directory)
  const path = join(temporaryDirectory(t), 'secrets.db')
  const run = async () => HaTestMember.start(t, nats, 'a', path)
  const a = await run()
  await initialized(a)
  await a.active()
  await a.end()
  await nats.kill()
  cpSync(directory, `${directory}.old`, { recursive: true })
  await nats.restart()
  const continued = await run()
  await continued.active()
  await continued.put('x', '1')
  await continued.end()
  await nats.kill()
  rmSync(directory, { recursive: true })
  cpSync(`${directory}.old`, directory, { recursive: true })
  await nats.restart()
  const behind = await run()
  await eventually(() =>
    behind.lines.some(({ fields }) => String(fields['error']).includes('an older state of the commit stream')),
  )
  assert.doesNotMatch(behind.server.trouble ?? '', /lost/)
  await eventually(() => behind.server.trouble?.includes('NATS lost acknowledged messages'))
  assert.equal(behind.server.takeovers, 0)
})

test('a server does not become active over NATS servers that do not sync, and says what to change', async (t) => {
  const nats = await startJetStream(t, { sync: '2m' })
  const a = await HaTestMember.start(t, nats, 'a')
  await eventually(() => a.server.trouble?.includes('set jetstream { sync_interval: always }'))
  await assert.rejects(a.server.acquireForInitialization(), /sync_interval/)
})

test('members ignore what is not a message, and refuse a message of another version', async (t) => {
  const newer = packr.pack({ format: 2, id: 'x', part: 0, parts: 1, bytes: new Uint8Array() })
  assert.throws(() => new MessageAssembler().add(newer), /another version/)
  const nats = await startJetStream(t)
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  const b = await HaTestMember.start(t, nats, 'b')
  await b.has('core/keyring', 'ring')
  await a.connection?.request('outpost.global.ha.commits', new Uint8Array([1, 2, 3]))
  // The active server is refused once; it or the other one then continues after the message.
  await assert.rejects(a.put('x', '1'))
  await eventually(() => a.server.isServing || b.server.isServing)
  const active = a.server.isServing ? a : b
  await active.put('x', '2')
  await (active === a ? b : a).has('x', '2')
})

function required<T>(value: T | undefined): T {
  assert.ok(value)
  return value
}

test('the clock of a member that takes over starts at the latest time at which the last one can have served', async (t) => {
  const nats = await startJetStream(t)
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  const b = await HaTestMember.start(t, nats, 'b')
  await b.has('core/keyring', 'ring')
  a.core.nowMs = 50_000
  a.server.requestStepDown()
  await a.server.stepDownIfRequested()
  await b.active()
  assert.ok(b.core.clockMs >= 50_000, `${b.core.clockMs}`)

  b.core.nowMs = 70_000
  await eventually(() => b.server.lease?.holder?.clockMs === 70_000)
  b.isCutOff = true
  await b.connection?.close()
  await a.active()
  assert.ok(a.core.clockMs >= 70_000 + TIMINGS.haLeaseMs * 1.1, `${a.core.clockMs}`)
})

test('the stream is trimmed by its size, and goes on', async (t) => {
  const nats = await startJetStream(t)
  const a = await HaTestMember.start(t, nats, 'a')
  await initialized(a)
  await a.active()
  for (const path of ['1', '2', '3', '4']) await a.put(path, 'x'.repeat(200_000))
  const connection = await connect({ servers: [nats.url], inboxPrefix: 'outpost.global.ha.inbox' })
  t.after(() => connection.close())
  const stream = await CommitStream.open(connection, 'global', 1)
  const before = await stream.bounds()
  assert.ok(before.bytes > 800_000)
  await stream.trimBytes(500_000)
  const { bytes, first, last } = await stream.bounds()
  assert.deepEqual([bytes <= 500_000, first > before.first, last], [true, true, before.last])
  await a.put('5', 'x'.repeat(600_000))
  assert.equal((await stream.bounds()).last, last + 1)
})
