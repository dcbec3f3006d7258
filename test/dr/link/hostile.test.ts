/** Peers with valid certificates that do not keep to the rules: what they cost is bounded, and the state says what is wrong. */
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { connect, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Client, connectivityState, credentials, Client as GrpcClient, Metadata } from '@grpc/grpc-js'
import {
  CallLimiter,
  type FollowCall,
  LinkServer,
  type LinkService,
  send,
  VALUES_MAX,
} from '../../../src/dr/link/link-server.ts'
import { checkEpoch, EPOCH_STEP_MAX, LinkClient, pathOf } from '../../../src/dr/link/link.ts'
import { makeAuthority, makeIdentity, serverNameOf } from '../../../src/dr/link/certificates.ts'
import type { Bundle } from '../../../src/dr/link/bundle.ts'
import { METHODS, type LinkMethod, pack, PROTOCOL } from '../../../src/dr/link/messages.ts'
import { eventually } from '../../helpers/eventually.ts'
import { recordingLogger } from '../../helpers/recording-logger.ts'
import { activate, bundleFor, Site, untilSame } from '../../helpers/replication-site.ts'

const upstreamOf = (bundle: Bundle) => ({
  setId: bundle.set_id,
  authority: bundle.ca_cert,
  certificate: bundle.client_cert,
  key: bundle.client_key,
})

/** A client that sends what it likes, on a connection of its own. */
function rawClient(t: TestContext, bundle: Bundle): Client {
  const secure = credentials.createSsl(
    Buffer.from(bundle.ca_cert),
    Buffer.from(bundle.client_key),
    Buffer.from(bundle.client_cert),
  )
  const name = serverNameOf(bundle.set_id)
  const options = {
    'grpc.ssl_target_name_override': name,
    'grpc.default_authority': name,
    'grpc.use_local_subchannel_pool': 1,
  }
  const client = new GrpcClient(bundle.cluster_addr, secure, options)
  t.after(() => client.close())
  return client
}

const same = (bytes: Buffer) => bytes

const isOpen = (one: Client) => one.getChannel().getConnectivityState(false) === connectivityState.READY

/** Resolves with the response. */
function ping(one: Client): Promise<unknown> {
  return new Promise((answered) => {
    one.makeUnaryRequest(pathOf('Ping'), same, same, pack({}), new Metadata(), {}, answered)
  })
}

test('an epoch beyond the limit of promotions is refused', () => {
  for (const own of [0, 7]) {
    checkEpoch(own + EPOCH_STEP_MAX, own)
    assert.throws(() => checkEpoch(own + EPOCH_STEP_MAX + 1, own), { reason: 'malformed' })
  }
})

test('a hostile secondary', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await primary.put('a')
  await activate(primary, secondary)
  const bundle = await bundleFor(primary, 'hostile')
  const client = rawClient(t, bundle)
  const ask = (method: LinkMethod, bytes: Buffer) =>
    new Promise<string>((resolve) => {
      client.makeUnaryRequest(pathOf(method), same, same, bytes, new Metadata(), {}, (error) => {
        resolve(error?.details ?? 'answered')
      })
    })
  const follow = (...messages: unknown[]) =>
    new Promise<string>((resolve) => {
      const call = client.makeBidiStreamRequest(pathOf('Follow'), pack, same)
      call.on('data', () => undefined)
      call.on('error', (error) => resolve(error.message))
      call.on('end', () => resolve('ended'))
      for (const message of messages) call.write(message)
    })
  const position = { sequence: 1, epoch: 0, checksum: Buffer.alloc(32) }
  const from = { kind: 'from', position, epoch: 0, windowBytes: 1 << 20, api: '', cluster: '' }

  await t.test('garbage is refused in every method', async () => {
    const claims = Buffer.concat(Array.from({ length: 1000 }, () => Buffer.from([0xdd, 0x01, 0xc9, 0xc3, 0x80])))
    const wrong = [Buffer.alloc(0), Buffer.from('garbage'), claims, pack({ kind: 'from' }), pack([1, 2])]
    for (const method of ['Join', 'Leaves', 'Fence', 'Subpages'] as const satisfies readonly (keyof typeof METHODS)[]) {
      for (const bytes of wrong) assert.match(await ask(method, bytes), /malformed \w+ request/, method)
    }
    assert.match(await ask('Join', Buffer.alloc(2 << 20)), /larger than max/)
    assert.match(await follow('garbage'), /deserializing/)
  })

  const fence = (epoch: number) =>
    ask('Fence', pack({ epoch, fork: position, addresses: [], api: '', nonce: Buffer.alloc(16) }))
  const values = (path: string) =>
    new Promise<string>((resolve) => {
      const call = client.makeServerStreamRequest(pathOf('Values'), same, same, pack({ paths: [path] }))
      call.on('data', () => resolve('answered'))
      call.on('error', (error) => resolve(error.message))
      call.on('end', () => resolve('ended'))
    })

  await t.test('a certificate that has not joined allows only joining', async () => {
    assert.match(await ask('Leaves', pack({ subpages: [0], after: '' })), /has not joined yet/)
    assert.match(await values('core/keyring'), /has not joined yet/)
    assert.match(await fence(1), /has not joined yet/)
    assert.equal(primary.store.role, 'own')
  })

  await t.test('it follows only after it has joined and acknowledges only what it was sent', async () => {
    assert.match(await follow(from), /has not joined yet/)
    const link = await LinkClient.connect(upstreamOf(bundle), bundle.cluster_addr, 20_000)
    t.after(() => link.close())
    const about = {
      protocol: PROTOCOL,
      version: '1.0.0',
      nonce: bundle.nonce,
      isTrial: false,
      atMs: 0,
      api: '',
      cluster: '',
    }
    await link.call('Join', { ...about, position, epoch: 0 }, 20_000)
    const far = { ...position, sequence: Number.MAX_SAFE_INTEGER }
    assert.equal(await follow({ ...from, position: far }), 'ended', 'a comparison of trees is requested')
    const here = { ...from, position: primary.store.position() }
    assert.match(
      await follow(here, { kind: 'ack', position: { ...position, sequence: 1e9 }, isWhole: true }),
      /not sent/,
    )
    assert.match(
      await follow(here, { kind: 'ack', position: { ...position, sequence: 0 }, isWhole: true }),
      /went backward/,
    )
    assert.match(
      await follow(here, { kind: 'echo', beat: 99, atMs: 0, position, isWhole: true }),
      /not sent|unknown heartbeat/,
    )
    assert.match(await follow(here, here), /second "from" message/)
  })

  await t.test('it gets no local entry and cannot set an epoch beyond the limit', async () => {
    assert.ok(primary.store.get('local/replication/state'))
    assert.match(await values('local/replication/state'), /malformed \w+ request|deserializing/)
    assert.deepEqual(primary.store.entriesAt(['local/replication/state']).entries, [])
    for (const epoch of [Number.MAX_SAFE_INTEGER, 2 ** 40]) {
      assert.match(await fence(epoch), /malformed \w+ request|too far above/)
      assert.match(await follow({ ...from, position: primary.store.position(), epoch }), /far above|deserializing/)
    }
    assert.equal(primary.store.role, 'own')
  })

  await t.test('its calls are limited over all its connections', async (ofCalls) => {
    const clients = Array.from({ length: 12 }, () => rawClient(t, bundle))
    const answers: string[] = []
    // Streams that say nothing are under way until they are given up.
    const silent = (one: Client) => {
      const call = one.makeBidiStreamRequest(pathOf('Follow'), pack, same)
      call.on('data', () => undefined)
      call.on('error', ({ message }) => answers.push(message))
      ofCalls.after(() => call.cancel())
    }
    for (const one of clients.slice(0, 6)) for (let at = 0; at < 4; at++) silent(one)
    await eventually(
      () => answers.filter((text) => /too many concurrent calls from this secondary .limit 16/.test(text)).length >= 8,
      'too many calls',
    )
    await Promise.all(clients.slice(6).map(ping))
    // Long before connections without a call are closed, which takes a minute.
    await eventually(() => clients.filter(isOpen).length <= 8, 'too many connections', 30_000)
    await primary.put('beside')
    await untilSame(primary, secondary)
    for (const one of clients) one.close()
  })

  await t.test('a thousand streams do not affect the other secondary', async () => {
    const streams = Array.from({ length: 1000 }, () => follow({ ...from, position: primary.store.position() }))
    await primary.put('meanwhile')
    await untilSame(primary, secondary)
    assert.ok((primary.replication.metrics.primary?.secondaries.length ?? 0) <= 2)
    await primary.replication.revokeSecondary('hostile')
    await Promise.all(streams)
  })

  await t.test('connections without a call are closed first', async () => {
    const { port } = primary.replication.listening ?? { port: 0 }
    const sockets: Socket[] = []
    t.after(() => {
      for (const socket of sockets) socket.destroy()
    })
    for (let at = 0; at < 400; at++) {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => undefined)
      sockets.push(socket)
      if (at % 50 === 0) await sleep(1)
    }
    await eventually(() => sockets.filter(({ destroyed }) => destroyed).length >= 100, 'the first ones were closed')
    await secondary.restart()
    await primary.put('after/that')
    await untilSame(primary, secondary)
  })
})

test('a secondary has a lower limit for calls that send entries', () => {
  const calls = new CallLimiter()
  for (let at = 0; at < VALUES_MAX; at++) calls.enter('one', 'Values')
  assert.throws(() => calls.enter('one', 'Values'), { reason: 'busy' })
  calls.enter('one', 'Leaves')
  calls.enter('two', 'Values')
  calls.leave('one', 'Values')
  calls.enter('one', 'Values')
})

const never = () => Promise.reject(new Error('not asked for'))

/** A primary that does in `Follow` what the test says. */
async function hostilePrimary(t: TestContext, secondary: Site, misbehave: (call: FollowCall) => Promise<void>) {
  const setId = randomUUID()
  const authority = await makeAuthority(setId, Date.now())
  const identity = await makeIdentity(authority, 'server', setId, Date.now())
  const client = await makeIdentity(authority, 'client', setId, Date.now())
  const position = { sequence: 0, epoch: 0, checksum: Buffer.alloc(32) }
  const about = {
    protocol: PROTOCOL,
    version: '1.0.0',
    setId,
    clusterId: 'c',
    epoch: 0,
    addresses: [],
    api: '',
    bytes: 0,
  }
  let follows = 0
  const service: LinkService = {
    unary: {
      Join: () => Promise.resolve({ ...about, position, forks: [], atMs: Date.now() }),
      Ping: () => Promise.resolve({ position, epoch: 0, setId }),
      // Nothing differs: what follows is what the secondary believes.
      Pages: async () => ({ position, pages: [...(await secondary.store.tree.pages())] }),
      Subpages: never,
      Leaves: never,
      Fence: never,
    },
    follow: (_, call) => {
      follows++
      return misbehave(call)
    },
    values: async function* () {},
  }
  const server = await LinkServer.listen({
    host: '127.0.0.1',
    port: 0,
    authority: authority.certificate,
    identity,
    service,
    logger: recordingLogger([]),
  })
  t.after(() => server.close())
  const bundle: Bundle = {
    version: 1,
    set_id: setId,
    id: 'x',
    cluster_addr: `127.0.0.1:${server.address.port}`,
    api_addr: '',
    ca_cert: authority.certificate,
    client_cert: client.certificate,
    client_key: client.key,
    expires_at_ms: Date.now() + 60_000,
    nonce: 'n',
  }
  await secondary.replication.enableSecondary(bundle)
  return { follows: () => follows }
}

test('rows that do not fit the history are refused and the secondary retries with a pause', async (t) => {
  const secondary = await Site.start(t, 'secondary', { timings: { retryMinMs: 50 } })
  const row = [1, 0, 1, Buffer.alloc(32), Buffer.from([1, 0, 0])]
  const primary = await hostilePrimary(t, secondary, (call) =>
    send(call, { kind: 'rows', rows: [row] }).then(() => sleep(50)),
  )
  await eventually(() => primary.follows() > 4, 'the secondary retried')
  await eventually(
    async () => /does not continue/.test(String(await secondary.field('trouble'))),
    'the status says why',
  )
  assert.equal(secondary.store.position().sequence, 0)
  assert.equal(secondary.replication.mode, 'secondary')
})

test('a primary that floods is disconnected and costs little memory', async (t) => {
  const secondary = await Site.start(t, 'secondary')
  const position = { sequence: 0, epoch: 0, checksum: Buffer.alloc(32) }
  const beat = {
    kind: 'beat',
    beat: 1,
    position,
    epoch: 0,
    atMs: 1,
    addresses: [],
    api: '',
    skewMs: 0,
    durationMs: 0,
    sync: 'off',
  }
  const ways = [
    // More than one value may have, in parts.
    async (call: FollowCall) => {
      for (let at = 0; at < 100 && !call.destroyed; at++)
        await send(call, { kind: 'part', bytes: Buffer.alloc(1 << 20) })
    },
    async (call: FollowCall) => send(call, { kind: 'part', bytes: Buffer.alloc(50 << 20) }),
    async (call: FollowCall) => send(call, { kind: 'nonsense' }),
    // It never reads what the secondary answers.
    async (call: FollowCall) => {
      call.pause()
      for (let at = 0; at < 1000 && !call.destroyed; at++) await send(call, { ...beat, beat: at })
    },
  ]
  let way = 0
  const primary = await hostilePrimary(t, secondary, (call) => ways[way++ % ways.length]?.(call) ?? Promise.resolve())
  await eventually(
    () => primary.follows() > ways.length,
    () => `it has come through ${primary.follows()}: ${JSON.stringify(secondary.lines.slice(-3))}`,
  )
  assert.equal(secondary.store.position().sequence, 0)
  assert.notEqual(await secondary.field('trouble'), '')
})
