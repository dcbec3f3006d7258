/** The connection to NATS over several servers, and what a server does not permit. */
import '../../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { test, type TestContext } from 'node:test'
import { openNatsLink } from '../../../src/cluster/nats/nats-link.ts'
import { ClientOutbox, type Outbox, outboxOf, SocketOutbox } from '../../../src/cluster/nats/outbox.ts'
import { keepingLogger } from '../../host/allocations/host-fixture.ts'
import { startNatsServer } from '../../helpers/nats-server.ts'
import { eventually } from '../../helpers/eventually.ts'

const NOTHING = new Uint8Array(0)

async function linkTo(t: TestContext, ...servers: readonly string[]) {
  return linkBy(t, outboxOf, ...servers)
}

async function linkBy(t: TestContext, outbox: typeof outboxOf, ...servers: readonly string[]) {
  const logger = keepingLogger()
  const link = await openNatsLink({ servers, name: 'test', logger, outboxOf: outbox })
  t.after(() => link.close())
  const count = (message: string) => logger.lines.filter((line) => line.message === message).length
  const server = () => logger.lines.findLast(({ message }) => message === 'connected to NATS')?.fields['server']
  return { link, logger, count, server }
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  return typeof address === 'object' && address ? address.port : 0
}

test('of several servers any one is enough, and the next takes over', async (t) => {
  const [first, second] = [await startNatsServer(t), await startNatsServer(t)]
  const { link, server } = await linkTo(t, 'nats://127.0.0.1:1', first.url, second.url)
  let heard = 0
  link.subscribe('outpost.test', () => heard++)
  await eventually(() => link.isConnected)
  const [before, after] = server() === `127.0.0.1:${first.port}` ? [first, second] : [second, first]
  await before.kill()
  await eventually(() => !link.isConnected)
  await eventually(() => link.isConnected)
  assert.equal(server(), `127.0.0.1:${after.port}`)
  await eventually(() => {
    link.publish('outpost.test', NOTHING)
    return heard > 0
  })
})

/** The servers that a new client is told of. */
async function toldBy(port: number): Promise<readonly string[]> {
  const socket = connect(port, '127.0.0.1')
  const [said] = await once(socket, 'data')
  socket.destroy()
  const info: { connect_urls?: string[] } = JSON.parse(String(said).split('\r\n')[0]?.slice('INFO '.length) ?? '{}')
  return info.connect_urls ?? []
}

const cluster = (listen: number, more: string) =>
  `server_name: s${listen}\ncluster { name: c, listen: "127.0.0.1:${listen}", ${more} }`

test('servers of a NATS cluster that nobody has named are found', async (t) => {
  const route = await freePort()
  const first = await startNatsServer(t, cluster(route, ''))
  const second = await startNatsServer(t, cluster(-1, `routes: ["nats://127.0.0.1:${route}"]`))
  const { link, logger } = await linkTo(t, first.url)
  let heard = 0
  link.subscribe('outpost.test', () => heard++)
  await eventually(() => link.isConnected)
  await eventually(async () => (await toldBy(first.port)).includes(`127.0.0.1:${second.port}`), 'they have met')
  // Clients are told at that moment too; what comes after it has come, so they have read it.
  link.publish('outpost.test', NOTHING)
  await eventually(() => heard > 0)
  await first.kill()
  await eventually(() => !link.isConnected)
  await eventually(() => link.isConnected)
  assert.ok(logger.lines.length <= 6)
})

const config = (subscribe: string, publish: string) =>
  `authorization { users: [{ user: u, password: p, permissions: { publish: "${publish}", subscribe: "${subscribe}" } }] }
no_auth_user: u`

test('what is not permitted is said once, and works when it is permitted without a new connection', async (t) => {
  const nats = await startNatsServer(t, config('may.>', 'may.>'))
  const { link, logger, count } = await linkTo(t, nats.url)
  const heard: string[] = []
  link.subscribe('other.one', ({ subject }) => void heard.push(subject))
  link.subscribe('may.one', ({ subject }) => void heard.push(subject))
  await eventually(() => link.isConnected)
  for (let call = 0; call < 100; call++) link.publish(`other.two.${call}`, NOTHING)
  await eventually(() => {
    link.publish('may.one', NOTHING)
    return heard.length > 0
  })
  const refused = () => logger.lines.filter(({ message }) => message.startsWith('the NATS server does not permit'))
  await eventually(() => refused().length === 2)
  assert.deepEqual(
    refused()
      .map(({ fields }) => String(fields['operation']))
      .toSorted((a, b) => a.localeCompare(b)),
    ['publish', 'subscription'],
  )
  assert.equal(count('connected to NATS'), 1)
  // Whoever publishes meanwhile: the subscription is made again by itself.
  const other = await linkTo(t, nats.url)
  nats.reload(config('>', '>'))
  await eventually(() => {
    other.link.publish('other.one', NOTHING)
    return heard.includes('other.one')
  })
})

test('closing waits for what was published, not for a server that hangs', async (t) => {
  const nats = await startNatsServer(t)
  const [one, two] = [await linkTo(t, nats.url), await linkTo(t, nats.url)]
  let heard = 0
  two.link.subscribe('outpost.test', () => heard++)
  await eventually(() => one.link.isConnected && two.link.isConnected)
  await eventually(() => {
    one.link.publish('outpost.test', NOTHING)
    return heard > 0
  })
  const before = heard
  one.link.publish('outpost.test', NOTHING)
  await one.link.close()
  await eventually(() => heard > before)
  nats.signal('SIGSTOP')
  await two.link.close()
  nats.signal('SIGCONT')
})

const WAYS: Readonly<Record<string, typeof outboxOf>> = {
  'the socket below the client': outboxOf,
  'the client itself': (connection) => new ClientOutbox(connection),
  // As after an update that keeps the socket elsewhere.
  'a client without its socket': (connection) =>
    outboxOf(new Proxy(connection, { get: (target, name) => (name === 'protocol' ? {} : bound(target, name)) })),
}

function bound(target: object, name: string | symbol): unknown {
  const value: unknown = Reflect.get(target, name)
  return typeof value === 'function' ? value.bind(target) : value
}

function dataOf(message: number): string {
  return String.fromCharCode(65 + (message % 26)).repeat(message * 250)
}

for (const [way, outbox] of Object.entries(WAYS)) {
  test(`by ${way}: messages come whole, in order, with where to answer, and not before what was subscribed`, async (t) => {
    const nats = await startNatsServer(t)
    const used: Outbox[] = []
    const { link: one } = await linkBy(
      t,
      (connection) => (used.push(outbox(connection)), used.at(-1) ?? outbox(connection)),
      nats.url,
    )
    const { link: two } = await linkTo(t, nats.url)
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
    assert.ok(used[0] instanceof (outbox === outboxOf ? SocketOutbox : ClientOutbox))
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
