/** Invalid messages on the bus break nothing, do not fill the log, and do not affect calls. */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import { Packr } from 'msgpackr'
import { openNatsBus } from '../../src/cluster/nats/nats-bus.ts'
import type { KnownServer } from '../../src/cluster/trust/server-trust.ts'
import { Subjects } from '../../src/cluster/nats/subjects.ts'
import { type ClusterWorld, startCluster } from '../helpers/cluster.ts'
import { ask } from '../helpers/raw-http.ts'
import { type Sealing, sealingFor } from '../helpers/sealed-world.ts'
import { recordingLogger } from '../host/allocations/host-fixture.ts'
import { eventually } from '../helpers/eventually.ts'

const packr = new Packr({ useRecords: false })
const NODE = 'c1a57e00-1111-4111-8111-111111111111'

async function busOf(t: TestContext, world: ClusterWorld): Promise<NatsConnection> {
  const bus = await connect({ servers: [world.nats.url] })
  t.after(() => bus.close())
  return bus
}

/** A stranger on the bus, and the server as it has heard it. */
async function strangerOn(t: TestContext, world: ClusterWorld): Promise<Sealing & { server: KnownServer }> {
  const logger = recordingLogger()
  const bus = await openNatsBus({ servers: [world.nats.url], name: 'me', logger })
  t.after(() => bus.close())
  await eventually(() => bus.isConnected)
  const stranger = sealingFor(t, { bus, subjects: new Subjects('global'), self: { nodeId: 'me' }, logger })
  // Refused until an announcement of the server has arrived.
  const server = await eventually(
    () => stranger.calls.pick('any', new Set()).catch(() => undefined),
    'a server is known',
  )
  return { ...stranger, server }
}

function nested(depth: number): Buffer {
  // A list in a list, over and over, and nothing at the end.
  return Buffer.alloc(depth, 0x91)
}

/** A generator that gives the same bytes for the same seed. */
function randomBytes(seed: number): (bytes: number) => Buffer {
  let state = seed
  return (bytes) => {
    const out = Buffer.alloc(bytes)
    for (let at = 0; at < bytes; at++) {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
      out[at] = state >>> 16
    }
    return out
  }
}

function payloads(): Buffer[] {
  const random = randomBytes(11)
  const call = {
    version: 1,
    operation: 'host.stats',
    input: { params: {}, query: [], headers: {} },
    requestId: 'r',
    hops: 0,
    window: 1,
    call: 'x',
  }
  const whole = packr.pack(call)
  return [
    Buffer.alloc(0),
    ...Array.from({ length: 256 }, (_, first) => Buffer.concat([Buffer.of(first), random(first % 40)])),
    ...Array.from({ length: 100 }, (_, index) => random(index * 17)),
    ...Array.from({ length: whole.length }, (_, end) => whole.subarray(0, end)),
    ...[null, 1, 'text', [], {}, [call], { ...call, version: -1 }, { ...call, version: 'x' }].map((each) =>
      packr.pack(each),
    ),
    ...[
      { ...call, hops: 99 },
      { ...call, window: 0 },
      { ...call, call: 'a.b' },
      { ...call, call: '>' },
    ].map((each) => packr.pack(each)),
    packr.pack({ ...call, input: { params: { __proto__: 1 }, query: [['a']], headers: 7 } }),
    packr.pack({ ...call, operation: 'x'.repeat(100_000) }),
    packr.pack({ kind: 'credit', taken: -1, allowed: 2 ** 60 }),
    packr.pack({ kind: 'cancel' }),
    packr.pack({ kind: 'end', sequence: 5 }),
    nested(1000),
    nested(900_000),
    // A list, a map, a text and bytes that claim four billion entries.
    ...[0xdd, 0xdf, 0xdb, 0xc6].map((kind) => Buffer.from([kind, 0xff, 0xff, 0xff, 0xff, 1, 2, 3])),
    random(1_000_000),
  ]
}

function subjects(nodeId: string, serverId: string): string[] {
  const root = 'outpost.global'
  return [
    `${root}.node.${nodeId}.call`,
    `${root}.node.${nodeId}.flow.x`,
    `${root}.node.${nodeId}.flow`,
    `${root}.node.${nodeId}.describe`,
    `${root}.node.${nodeId}.reply.any.x`,
    `${root}.server.${serverId}.call.${nodeId}`,
    `${root}.server.${serverId}.call.somebody`,
    `${root}.server.${serverId}.core.somebody`,
    `${root}.server.${serverId}.flow.somebody.x`,
    `${root}.servers.key`,
    `${root}.servers.ask.somebody`,
    `${root}.server.x.flow.${nodeId}.x`,
    `${root}.server.x.reply.${nodeId}.x`,
    `${root}.roster.${nodeId}.beat`,
    `${root}.roster.${nodeId}.state`,
    `${root}.roster.${nodeId}.leave`,
    `${root}.roster.${nodeId}.else`,
    `${root}.roster.${NODE}.state`,
    `${root}.roster.nobody.state`,
  ]
}

/** Sends both a message of a newer version, and waits for their answers. */
async function answersToNewer(t: TestContext, world: ClusterWorld): Promise<void> {
  const { member } = world.host()
  const bus = await busOf(t, world)
  const heard: { kind?: string; code?: string; message?: string }[] = []
  bus.subscribe('outpost.global.server.me.reply.>', {
    callback: (_error, { data }) => void heard.push(packr.unpack(data)),
  })
  const newer = packr.pack({ version: 99, call: 'abc', what: 'nobody knows yet' })
  const replies = [`outpost.global.server.me.reply.${member.nodeId}.abc`, 'outpost.global.node.me.reply.any.abc']
  bus.publish(`outpost.global.node.${member.nodeId}.call`, newer, { reply: replies[0] ?? '' })
  await eventually(() => heard.length === 1)
  const { calls, server } = await strangerOn(t, world)
  const to = { subject: `outpost.global.server.${server.serverId}.call.me`, reply: replies[1] ?? '' }
  const sealed = calls.seal(server, to, newer)
  bus.subscribe('outpost.global.node.me.reply.any.abc', {
    callback: (_error, { data }) => {
      const opened = sealed.open(data)
      if (opened instanceof Uint8Array) heard.push(packr.unpack(opened))
    },
  })
  await bus.flush()
  bus.publish(to.subject, sealed.request, { reply: to.reply })
  await eventually(() => heard.length === 2)
  for (const { kind, code, message } of heard) {
    assert.deepEqual([kind, code], ['refusal', 'not_implemented'])
    assert.match(message ?? '', /older version of outpost/)
  }
}

test('invalid messages on the bus are refused', { timeout: 240_000 }, async (suite) => {
  const world = await startCluster(suite, { hosts: 1 })

  await suite.test('a message of a newer version is refused with the reason', async (t) => {
    await answersToNewer(t, world)
    const { member } = world.host()
    const bus = await busOf(t, world)
    // Signed messages say their format first.
    bus.publish(`outpost.global.roster.${member.nodeId}.state`, Buffer.concat([Buffer.of(200), Buffer.alloc(300)]))
    await eventually(() => /node message rejected.*newer/.test(world.server().stderr))
  })

  await suite.test('malformed and oversized messages on every subject are refused', async (t) => {
    const { member, allocId } = world.host()
    const members = [world.server(), member]
    const bus = await busOf(t, world)
    const logged = members.map((each) => each.stderr.length)
    let sent = 0
    const { server } = await strangerOn(t, world)
    for (const subject of subjects(member.nodeId, server.serverId)) {
      for (const payload of payloads()) {
        for (const reply of [
          '',
          'outpost.global.server.x.reply.any.x',
          `outpost.global.roster.${member.nodeId}.beat`,
        ]) {
          bus.publish(subject, payload, reply === '' ? {} : { reply })
          sent++
        }
      }
      await bus.flush()
    }
    assert.ok(sent > 20_000)
    // What both answer now comes after all of that.
    await answersToNewer(t, world)
    const { status } = await ask(world.server().port, 'GET', `/v1/client/fs/ls/${allocId}`)
    assert.equal(status, 200)
    for (const [at, each] of members.entries()) {
      const lines = each.stderr.slice(logged[at]).trim().split('\n')
      const ofBus = lines.filter((line) => !line.includes('host.ls'))
      assert.ok(ofBus.length < 20, `${each.name} logged ${ofBus.length} lines: ${ofBus.slice(0, 5).join('\n')}`)
      assert.ok(each.rssMiB() < 400, `${each.name} has ${each.rssMiB()} MiB`)
    }
  })
})
