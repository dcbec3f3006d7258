/** The connection to several NATS servers, and denied permissions. */
import '../../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { test, type TestContext } from 'node:test'
import { causeOf, openNatsBus } from '../../../src/cluster/nats/nats-bus.ts'
import { ClientPublisher, type Publisher, publisherOf, SocketPublisher } from '../../../src/cluster/nats/publisher.ts'
import { recordingLogger } from '../../host/allocations/host-fixture.ts'
import { startNatsServer } from '../../helpers/nats-server.ts'
import { eventually } from '../../helpers/eventually.ts'
import { quietPort } from '../../helpers/quiet-port.ts'

const NOTHING = new Uint8Array(0)

async function busTo(t: TestContext, ...servers: readonly string[]) {
  return busWith(t, publisherOf, ...servers)
}

async function busWith(t: TestContext, publisher: typeof publisherOf, ...servers: readonly string[]) {
  const logger = recordingLogger()
  const bus = await openNatsBus({ servers, name: 'test', logger, publisherOf: publisher })
  t.after(() => bus.close())
  const count = (message: string) => logger.lines.filter((line) => line.message === message).length
  const server = () => logger.lines.findLast(({ message }) => message === 'connected to NATS')?.fields['server']
  return { bus, logger, count, server }
}

test('one of several servers is enough, and another one is used after its failure', async (t) => {
  const [first, second] = [await startNatsServer(t), await startNatsServer(t)]
  const { bus, server } = await busTo(t, 'nats://127.0.0.1:1', first.url, second.url)
  let heard = 0
  bus.subscribe('outpost.test', () => heard++)
  await eventually(() => bus.isConnected)
  const [before, after] = server() === `127.0.0.1:${first.port}` ? [first, second] : [second, first]
  await before.kill()
  await eventually(() => !bus.isConnected)
  await eventually(() => bus.isConnected)
  assert.equal(server(), `127.0.0.1:${after.port}`)
  await eventually(() => {
    bus.publish('outpost.test', NOTHING)
    return heard > 0
  })
})

test('the reason for a missing connection contains no address, and ends with it', async (t) => {
  const server = await startNatsServer(t)
  const { bus, count } = await busTo(t, server.url)
  await eventually(() => bus.isConnected)
  assert.equal(bus.disconnectReason, undefined)
  await server.kill()
  await eventually(() => count('cannot connect to NATS, retrying') > 0)
  assert.equal(bus.disconnectReason, 'ECONNREFUSED')
  const guarded = await startNatsServer(t, 'authorization { user: a, password: b }')
  const refused = await busTo(t, guarded.url)
  await eventually(() => refused.bus.disconnectReason !== undefined)
  assert.equal(refused.bus.disconnectReason, 'the NATS server refuses the login')
})

function tls(code: string, message: string): string {
  return causeOf(Object.assign(new Error(message), { code }))
}

test('a failed TLS handshake is a reason for a missing connection', () => {
  assert.equal(tls('CERT_HAS_EXPIRED', 'certificate has expired'), 'TLS: certificate has expired')
  const untrusted = 'the certificate of the NATS server is not trusted: set nats.ca_file to its CA'
  const advice = 'if the root CA is installed locally, try running Node.js with --use-system-ca'
  assert.equal(tls('DEPTH_ZERO_SELF_SIGNED_CERT', `self-signed certificate; ${advice}`), untrusted)
  assert.equal(tls('UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'unable to verify the first certificate'), untrusted)
  const other = tls('ERR_TLS_CERT_ALTNAME_INVALID', "Host: 10.0.0.1. is not in the cert's altnames: DNS:nats")
  assert.equal(other, 'the certificate of the NATS server is for another name')
  assert.equal(
    causeOf(new Error('connection failed', { cause: Object.assign(new Error('x'), { code: 'ETIMEDOUT' }) })),
    'ETIMEDOUT',
  )
  assert.equal(causeOf(new Error('10.0.0.1 is odd')), 'see the log')
})

/** The servers that a new client discovers. */
async function announcedBy(port: number): Promise<readonly string[]> {
  const socket = connect(port, '127.0.0.1')
  const [said] = await once(socket, 'data')
  socket.destroy()
  const info: { connect_urls?: string[] } = JSON.parse(String(said).split('\r\n')[0]?.slice('INFO '.length) ?? '{}')
  return info.connect_urls ?? []
}

const cluster = (listen: number, more: string) =>
  `server_name: s${listen}\ncluster { name: c, listen: "127.0.0.1:${listen}", ${more} }`

test('servers of a NATS cluster that are not configured are discovered', async (t) => {
  const route = await quietPort()
  const first = await startNatsServer(t, cluster(route, ''))
  const second = await startNatsServer(t, cluster(-1, `routes: ["nats://127.0.0.1:${route}"]`))
  const { bus, logger } = await busTo(t, first.url)
  let heard = 0
  bus.subscribe('outpost.test', () => heard++)
  await eventually(() => bus.isConnected)
  await eventually(
    async () => (await announcedBy(first.port)).includes(`127.0.0.1:${second.port}`),
    'the servers are connected',
  )
  // Clients are told at that moment too; what comes after it has come, so they have read it.
  bus.publish('outpost.test', NOTHING)
  await eventually(() => heard > 0)
  await first.kill()
  await eventually(() => !bus.isConnected)
  await eventually(() => bus.isConnected)
  assert.ok(logger.lines.length <= 6)
})

const config = (subscribe: string, publish: string) =>
  `authorization { users: [{ user: u, password: p, permissions: { publish: "${publish}", subscribe: "${subscribe}" } }] }
no_auth_user: u`

test('a denied permission is logged once, and a later grant takes effect without a reconnect', async (t) => {
  const nats = await startNatsServer(t, config('may.>', 'may.>'))
  const { bus, logger, count } = await busTo(t, nats.url)
  const heard: string[] = []
  bus.subscribe('other.one', ({ subject }) => void heard.push(subject))
  bus.subscribe('may.one', ({ subject }) => void heard.push(subject))
  await eventually(() => bus.isConnected)
  for (let call = 0; call < 100; call++) bus.publish(`other.two.${call}`, NOTHING)
  await eventually(() => {
    bus.publish('may.one', NOTHING)
    return heard.length > 0
  })
  const refused = () => logger.lines.filter(({ message }) => message.startsWith('NATS server denied'))
  await eventually(() => refused().length === 2)
  assert.deepEqual(
    refused()
      .map(({ fields }) => String(fields['operation']))
      .toSorted((a, b) => a.localeCompare(b)),
    ['publish', 'subscription'],
  )
  assert.equal(count('connected to NATS'), 1)
  // The subscription is restored automatically.
  const other = await busTo(t, nats.url)
  nats.reload(config('>', '>'))
  await eventually(() => {
    other.bus.publish('other.one', NOTHING)
    return heard.includes('other.one')
  })
})

test('close waits for published messages, and not for a server that hangs', async (t) => {
  const nats = await startNatsServer(t)
  const [one, two] = [await busTo(t, nats.url), await busTo(t, nats.url)]
  let heard = 0
  two.bus.subscribe('outpost.test', () => heard++)
  await eventually(() => one.bus.isConnected && two.bus.isConnected)
  await eventually(() => {
    one.bus.publish('outpost.test', NOTHING)
    return heard > 0
  })
  const before = heard
  one.bus.publish('outpost.test', NOTHING)
  await one.bus.close()
  await eventually(() => heard > before)
  nats.signal('SIGSTOP')
  await two.bus.close()
  nats.signal('SIGCONT')
})

const WAYS: Readonly<Record<string, typeof publisherOf>> = {
  'the socket below the client': publisherOf,
  'the client itself': (connection) => new ClientPublisher(connection),
  // As after an update that keeps the socket elsewhere.
  'a client without its socket': (connection) =>
    publisherOf(new Proxy(connection, { get: (target, name) => (name === 'protocol' ? {} : bound(target, name)) })),
}

function bound(target: object, name: string | symbol): unknown {
  const value: unknown = Reflect.get(target, name)
  return typeof value === 'function' ? value.bind(target) : value
}

function dataOf(message: number): string {
  return String.fromCharCode(65 + (message % 26)).repeat(message * 250)
}

for (const [way, publisher] of Object.entries(WAYS)) {
  test(`with ${way}: messages arrive complete, in order, with their reply subjects, and after earlier subscriptions`, async (t) => {
    const nats = await startNatsServer(t)
    const used: Publisher[] = []
    const { bus: one } = await busWith(
      t,
      (connection) => (used.push(publisher(connection)), used.at(-1) ?? publisher(connection)),
      nats.url,
    )
    const { bus: two } = await busTo(t, nats.url)
    const heard: { payload: string; reply: string }[] = []
    two.subscribe('outpost.test.*', ({ payload, reply }) => {
      heard.push({ payload: Buffer.from(payload).toString('latin1'), reply })
      if (reply !== '') two.publish(reply, Buffer.from(`answer ${heard.length}`))
    })
    await eventually(() => one.isConnected && two.isConnected)
    // Until the server knows of the subscription.
    await eventually(() => {
      if (heard.length === 0) one.publish('outpost.test.first', NOTHING)
      return heard.length > 0
    })
    await eventually(() => used.length === 1)
    assert.ok(used[0] instanceof (publisher === publisherOf ? SocketPublisher : ClientPublisher))
    heard.length = 0
    const answers: string[] = []
    const memory = Buffer.alloc(50_000)
    for (let message = 0; message < 200; message++) {
      const inbox = `outpost.answer.${message}`
      one.subscribe(inbox, ({ payload }) => void answers.push(Buffer.from(payload).toString()))
      memory.fill(65 + (message % 26))
      one.publish('outpost.test.one', Buffer.from(`${message} `), inbox, memory.subarray(0, message * 250))
      memory.fill(0)
    }
    await eventually(() => answers.length === 200)
    const expected = Array.from({ length: 200 }, (_, message) => ({
      payload: `${message} ${dataOf(message)}`,
      reply: `outpost.answer.${message}`,
    }))
    const first = heard.findIndex(({ reply }) => reply !== '')
    assert.deepEqual(heard.slice(first), expected)
    one.publish('no subject', NOTHING)
    one.publish('outpost.test.last', Buffer.from('last'))
    await one.close()
    await eventually(() => heard.at(-1)?.payload === 'last')
  })
}
