/** Trusted keys of servers: configured or announced. */
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { createUser, fromSeed } from '@nats-io/nkeys'
import { MemoryBroker } from '../../../src/cluster/nats/message-bus.ts'
import { newSeed, serverSigningKey, signingKeyOf } from '../../../src/cluster/nats/nkey.ts'
import { signAnnouncement } from '../../../src/cluster/trust/server-announcement.ts'
import { ServerKeys, type TrustedKeys } from '../../../src/cluster/trust/server-trust.ts'
import { Subjects } from '../../../src/cluster/nats/subjects.ts'
import { recordingLogger } from '../../host/allocations/host-fixture.ts'
import { natsCredentials } from '../../helpers/nats-credentials.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const subjects = new Subjects('global')
const CURVE_KEY = new Uint8Array(32).fill(7)

function worldOf(t: TestContext) {
  const broker = new MemoryBroker()
  const logger = recordingLogger()
  const keysFor = (serverId: string | undefined, trusted: TrustedKeys = {}, key = signingKeyOf(newSeed())) => {
    const keys = new ServerKeys({
      bus: broker.connect(),
      subjects,
      self: serverId === undefined ? { nodeId: 'node' } : { serverId },
      trusted,
      readOwnKey: serverId === undefined ? undefined : () => key,
      about: serverId === undefined ? undefined : { serverId, hasCore: true, curveKey: CURVE_KEY },
      logger,
    })
    keys.start()
    t.after(() => keys.stop())
    return { keys, publicKey: key.publicKey }
  }
  return { broker, keysFor, logger }
}

test('only a signature by a valid NKEY of a user is verified', (t) => {
  const pair = createUser()
  const key = signingKeyOf(new TextDecoder().decode(pair.getSeed()))
  const bytes = Buffer.from('what is signed')
  assert.equal(key.publicKey, pair.getPublicKey())
  assert.ok(pair.verify(bytes, key.sign(bytes)))
  const { keys } = worldOf(t).keysFor(undefined)
  const signature = pair.sign(bytes)
  assert.ok(keys.verify(key.publicKey, bytes, signature))
  assert.ok(!keys.verify(key.publicKey, Buffer.from('what is signeD'), signature))
  assert.ok(!keys.verify(createUser().getPublicKey(), bytes, signature))
  assert.ok(!keys.verify('U', bytes, signature))
  assert.ok(!keys.verify(key.publicKey, bytes, signature.subarray(1)))
  assert.throws(() => signingKeyOf('SUAnothing'), /does not contain the seed/)
})

test('an agent requests announcements for an unknown key, and accepts an announced one', async (t) => {
  const { keysFor } = worldOf(t)
  const agent = keysFor(undefined)
  const server = keysFor('s1')
  assert.equal(agent.keys.own, undefined)
  assert.equal(server.keys.own?.publicKey, server.publicKey)
  assert.equal(await agent.keys.isServer(server.publicKey), true)
  assert.equal(agent.keys.isServer(server.publicKey), true)
  assert.deepEqual(
    agent.keys.servers(true).map(({ serverId }) => serverId),
    ['s1'],
  )
})

test('a key that no server announces is refused after the timeout, and at once the next time', async (t) => {
  const { keysFor } = worldOf(t)
  const agent = keysFor(undefined)
  keysFor('s1')
  const stranger = createUser().getPublicKey()
  assert.equal(await agent.keys.isServer(stranger), false)
  assert.equal(agent.keys.isServer(stranger), false)
})

test('an announcement signed with another key is rejected and logged once', async (t) => {
  const { broker, keysFor, logger } = worldOf(t)
  const agent = keysFor(undefined)
  const [victim, thief] = [signingKeyOf(newSeed()), signingKeyOf(newSeed())]
  const about = { serverId: 's1', hasCore: true, curveKey: CURVE_KEY, clockMs: 0, sequence: 1 }
  const forged = signAnnouncement(about, subjects.serverKey, { ...thief, publicKey: victim.publicKey })
  const bus = broker.connect()
  for (const bytes of [forged, forged, forged.subarray(0, 80), Buffer.from('nonsense')]) {
    bus.publish(subjects.serverKey, bytes)
  }
  // Signed for another subject, as one of another region is.
  bus.publish(subjects.serverKey, signAnnouncement(about, new Subjects('other').serverKey, victim))
  assert.equal(await agent.keys.isServer(victim.publicKey), false)
  assert.equal(logger.lines.filter(({ message }) => message === 'server announcement rejected').length, 1)
})

test('an announcement of an older version is accepted, and one with an invalid cluster ID is rejected', async (t) => {
  const { broker, keysFor } = worldOf(t)
  const agent = keysFor(undefined)
  const key = signingKeyOf(newSeed())
  const bus = broker.connect()
  const about = { hasCore: true, curveKey: CURVE_KEY, clockMs: 0, sequence: 1 }
  const clusterId = '3d0b5a1e-95a5-4c0e-8a42-6a1a3d7d2b11'
  const announce = (more: { serverId: string; name?: string; clusterId?: string }) =>
    bus.publish(subjects.serverKey, signAnnouncement({ ...about, ...more }, subjects.serverKey, key))
  announce({ serverId: 'old' })
  announce({ serverId: 'faulty', name: 's1', clusterId: 'not a UUID' })
  announce({ serverId: 'hidden', name: 's1\u001b[2J', clusterId })
  announce({ serverId: 'new', name: 's1', clusterId })
  await eventually(() => agent.keys.servers(true).length >= 2)
  assert.deepEqual(
    agent.keys.servers(true).map((each) => [each.serverId, each.name, each.clusterId]),
    [
      ['old', undefined, undefined],
      ['new', 's1', clusterId],
    ],
  )
})

test('a replayed announcement does not count as a sign of life of its server', async (t) => {
  const { broker, keysFor } = worldOf(t)
  const agent = keysFor(undefined)
  const key = signingKeyOf(newSeed())
  const about = { serverId: 's1', hasCore: true, curveKey: CURVE_KEY, clockMs: 0 }
  const signed = (sequence: number) => signAnnouncement({ ...about, sequence }, subjects.serverKey, key)
  const announcedAtMs = () => agent.keys.servers(false)[0]?.announcedAtMs ?? 0
  const client = broker.connect()
  const publish = async (bytes: Uint8Array) => {
    client.publish(subjects.serverKey, bytes)
    for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve))
  }
  await publish(signed(2))
  await eventually(() => announcedAtMs() > 0)
  const before = announcedAtMs()
  for (const sequence of [2, 1]) await publish(signed(sequence))
  assert.equal(announcedAtMs(), before)
  await publish(signed(3))
  assert.ok(announcedAtMs() > before)
})

test('with configured keys an announced key is not trusted', async (t) => {
  const { keysFor, logger } = worldOf(t)
  const [first, second] = [keysFor('s1'), keysFor('s2')]
  const agent = keysFor(undefined, { serverKeys: [first.publicKey] })
  await eventually(() => agent.keys.servers(false).length === 1)
  assert.equal(agent.keys.isServer(first.publicKey), true)
  assert.equal(agent.keys.isServer(second.publicKey), false)
  assert.equal(
    logger.lines.find(({ message }) => /server announcement rejected/.test(message))?.fields['key'],
    second.publicKey,
  )
  // Both while one is replaced, then the new one alone.
  agent.keys.trust({ serverKeys: [first.publicKey, second.publicKey], coreKeys: [second.publicKey] })
  await eventually(() => agent.keys.servers(false).length === 2)
  assert.deepEqual(
    agent.keys.servers(true).map(({ key }) => key),
    [second.publicKey],
  )
  agent.keys.trust({ serverKeys: [second.publicKey] })
  assert.equal(agent.keys.isServer(first.publicKey), false)
  assert.equal(agent.keys.servers(false).length, 1)
})

test('a server signs with its login key, otherwise with a key that it generates once', (t) => {
  const directory = temporaryDirectory(t)
  const pair = createUser()
  const nkeyFile = join(directory, 'cluster.nk')
  writeFileSync(nkeyFile, `${new TextDecoder().decode(pair.getSeed())}\n`)
  assert.equal(serverSigningKey({ login: { nkeyFile }, directory }).publicKey, pair.getPublicKey())
  const { credentials } = natsCredentials()
  const credentialsFile = join(directory, 'server.creds')
  writeFileSync(credentialsFile, credentials)
  const seed = /^SU.*$/m.exec(credentials)?.[0] ?? ''
  const expected = fromSeed(new TextEncoder().encode(seed)).getPublicKey()
  assert.equal(serverSigningKey({ login: { credentialsFile }, directory }).publicKey, expected)

  const own = join(directory, 'server')
  const made = serverSigningKey({ login: {}, directory: own })
  assert.equal(statSync(join(own, 'server.nk')).mode & 0o777, 0o600)
  assert.equal(serverSigningKey({ login: {}, directory: own }).publicKey, made.publicKey)
  // What is there and no key is an error that shows nothing of it, and stays.
  const broken = join(directory, 'broken')
  mkdirSync(broken)
  writeFileSync(join(broken, 'server.nk'), 'SUSOMETHING')
  assert.throws(
    () => serverSigningKey({ login: {}, directory: broken }),
    (error: Error) => /broken\/server\.nk/.test(error.message) && !error.message.includes('SUSOMETHING'),
  )
  assert.equal(readFileSync(join(broken, 'server.nk'), 'utf8'), 'SUSOMETHING')
  assert.ok(!existsSync(join(directory, 'server.nk')))
})
