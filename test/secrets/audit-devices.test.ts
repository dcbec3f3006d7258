/** Audit devices that are in trouble, under load, and with options: what is recorded is whole, what is not is refused. */
import assert from 'node:assert/strict'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { mkdirSync, readFileSync, renameSync, rmdirSync, symlinkSync } from 'node:fs'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { test, type TestContext } from 'node:test'
import { kv } from '../../src/engines/kv/kv.ts'
import { assertBothLines, assertWhole, auditLinesIn, auditLinesOf } from '../helpers/audit-lines.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { eventually } from '../helpers/eventually.ts'
import { tokenPathsIn } from './token-world.ts'

async function worldOf(t: TestContext): Promise<CoreWorld> {
  const world = await CoreWorld.open(t, { engines: [kv] })
  await world.ask('POST', 'sys/mounts/kept', { type: 'kv', options: { version: '2' } })
  return world
}

async function enable(world: CoreWorld, name: string, type: string, options: Record<string, string>): Promise<void> {
  const answer = await world.ask('PUT', `sys/audit/${name}`, { type, options })
  assert.equal(answer.status, 204, answer.text)
}

async function withFile(t: TestContext, options: Record<string, string> = {}) {
  const world = await worldOf(t)
  const file = join(world.directory, 'audit.log')
  await enable(world, 'file', 'file', { file_path: file, ...options })
  return { world, file }
}

const write = (world: CoreWorld, value = 'v') => world.ask('POST', 'kept/data/db', { data: { value } })

/** A receiver of lines: what it got, and the connections that it has. */
interface Receiver {
  readonly server: Server
  readonly connections: Set<Socket>
  text: string
  onConnection: (socket: Socket) => void
}

async function receiver(t: TestContext, at: string | 0): Promise<Receiver> {
  const own: Receiver = {
    server: createServer({ pauseOnConnect: true }),
    connections: new Set(),
    text: '',
    onConnection: reads,
  }
  function reads(socket: Socket) {
    socket.setEncoding('utf8').on('data', (part: string) => (own.text += part))
    socket.resume()
  }
  own.server.on('connection', (socket) => {
    own.connections.add(socket)
    socket.on('error', () => undefined)
    own.onConnection(socket)
  })
  own.server.listen(at === 0 ? { port: 0, host: '127.0.0.1' } : { path: at })
  await once(own.server, 'listening')
  t.after(() => {
    for (const socket of own.connections) socket.destroy()
    own.server.close()
  })
  return own
}

const addressOf = ({ server }: Receiver) => `127.0.0.1:${(server.address() as AddressInfo).port}`

for (const type of ['tcp', 'unix'] as const) {
  test(`a ${type} socket gets both lines of each request, also over a reconnection`, async (t) => {
    const world = await worldOf(t)
    const file = join(world.directory, 'audit.sock')
    const own = await receiver(t, type === 'unix' ? file : 0)
    await enable(world, 'socket', 'socket', { socket_type: type, address: type === 'unix' ? file : addressOf(own) })
    const paths: string[] = []
    const ask = async () => {
      const path = `kept/data/${paths.length}`
      paths.push(path)
      assert.equal((await world.ask('POST', path, { data: {} })).status, 200)
    }
    await Promise.all(Array.from({ length: 20 }, ask))
    // What is on its way is sent to its end.
    const under = Promise.all(Array.from({ length: 20 }, ask))
    world.core.audit?.reopen()
    await under
    await ask()
    await eventually(() => own.text.split('"type":"response"').length > 41 && own.connections.size === 2, 'all came')
    await eventually(() => own.text.endsWith('\n'), 'the last line came')
    const lines = auditLinesOf(own.text)
    assertBothLines(lines, paths)
    const numbers = lines.map(({ chain }) => chain.sequence).toSorted((a, b) => a - b)
    assert.deepEqual(
      numbers,
      numbers.map((_, at) => at + 1),
      'each number once',
    )
  })
}

test('each datagram has one line, and a line that is too long fails only its own request', async (t) => {
  const world = await worldOf(t)
  const socket = createSocket('udp4')
  const lines: string[] = []
  socket.on('message', (message) => void lines.push(message.toString('utf8')))
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  t.after(() => socket.close())
  const address = `127.0.0.1:${socket.address().port}`
  await enable(world, 'socket', 'socket', { socket_type: 'udp', address, log_raw: 'true' })
  const [long, short] = await Promise.all([write(world, 'x'.repeat(70_000)), write(world)])
  assert.equal(long.status, 500, long.text)
  assert.match(long.body.errors[0] ?? '', /^no audit device has recorded the request: socket\//)
  assert.equal(short.status, 200, short.text)
  await eventually(() => lines.join('').includes('"type":"response"'), 'it came')
  assert.equal((await world.ask('GET', 'kept/data/db')).body.data['metadata'] !== undefined, true)
})

test('a receiver that does not read delays requests up to the timeout and is used again when it reads', async (t) => {
  const world = await worldOf(t)
  const own = await receiver(t, 0)
  const reads = own.onConnection
  own.onConnection = () => undefined
  await enable(world, 'socket', 'socket', { address: addressOf(own), write_timeout: '50ms', log_raw: 'true' })
  // What fits into the buffers of the system counts as recorded.
  const refused = await eventually(async () => {
    const answer = await write(world, 'x'.repeat(1 << 20))
    return answer.status === 200 ? undefined : answer
  }, 'the buffers are full')
  assert.equal(refused.status, 500)
  assert.match(refused.body.errors[0] ?? '', /^no audit device has recorded the request: socket\//)
  const file = join(world.directory, 'audit.log')
  for (const socket of own.connections) reads(socket)
  await eventually(async () => (await write(world)).status === 200, 'it reads again')
  assert.equal(own.connections.size, 1, 'the connection was kept')
  await enable(world, 'file', 'file', { file_path: file })
  own.onConnection = () => undefined
  for (const socket of own.connections) socket.pause()
  for (let at = 0; at < 20; at++) assert.equal((await write(world, 'x'.repeat(1 << 20))).status, 200, 'the file has it')
  await assertWhole(file)
})

test('the device reconnects after the receiver has closed the connection, and without a receiver requests fail', async (t) => {
  const world = await worldOf(t)
  const own = await receiver(t, 0)
  await enable(world, 'socket', 'socket', { address: addressOf(own), write_timeout: '2s' })
  for (const socket of own.connections) socket.destroy()
  await eventually(async () => (await write(world)).status === 200, 'it is connected to again')
  await eventually(() => own.connections.size === 2, 'by a second connection')
  own.server.close()
  for (const socket of own.connections) socket.destroy()
  const refused = await eventually(async () => {
    const answer = await write(world)
    return answer.text.includes('ECONNREFUSED') ? answer : undefined
  }, 'no receiver is connected')
  assert.equal(refused.status, 500)
  assert.equal(refused.body.errors[0], 'no audit device has recorded the request: socket/ ECONNREFUSED')
  const state = world.core.audit?.states[0]
  assert.ok((state?.failures ?? 0) >= 1)
  assert.match(state?.fault ?? '', /ECONNREFUSED/)
})

test('64 concurrent writers keep the chain intact while the file is renamed, blocked and reopened', {
  timeout: 120_000,
}, async (t) => {
  const { file, world } = await withFile(t)
  const answered: string[] = []
  const over = new AbortController()
  let next = 0
  const writer = async () => {
    while (!over.signal.aborted) {
      const path = `kept/data/${next++}`
      const { status } = await world.ask('POST', path, { data: {} })
      if (status === 200) answered.push(path)
      else {
        assert.equal(status, 500)
        // What fails at once waits for nothing, and others are to have their turn.
        await turn()
      }
    }
  }
  const writers = Array.from({ length: 64 }, writer)
  const files: string[] = []
  const more = async (count: number) => {
    const until = answered.length + count
    await eventually(() => answered.length >= until, 'requests are answered')
  }
  for (let at = 0; at < 5; at++) {
    await more(64)
    const old = `${file}.${at}`
    renameSync(file, old)
    files.push(old)
    if (at % 3 === 1) {
      // While another file has its name no request is answered.
      mkdirSync(file)
      await eventually(() => world.core.audit?.states[0]?.fault !== undefined, 'it fails')
      rmdirSync(file)
    }
    if (at % 2 === 0) world.core.audit?.reopen()
  }
  await more(64)
  over.abort()
  await Promise.all(writers)
  await assertWhole(...files, file)
  assertBothLines(auditLinesIn(...files, file), answered)
})

test('the last device can be disabled while lines are written to it', async (t) => {
  const { file, world } = await withFile(t)
  const writes = Array.from({ length: 64 }, () => write(world))
  await turn()
  const disabled = await world.ask('DELETE', 'sys/audit/file')
  assert.equal(disabled.status, 204, disabled.text)
  for (const { status, text } of await Promise.all(writes)) assert.equal(status, 200, text)
  assert.equal((await write(world)).status, 200)
  await assertWhole(file)
  await enable(world, 'file', 'file', { file_path: file })
  await write(world)
  await assertWhole(file)
})

test('two devices cannot share a file under different names', async (t) => {
  const { file, world } = await withFile(t)
  const link = join(world.directory, 'link')
  symlinkSync(world.directory, link)
  for (const path of [file, join(link, 'audit.log')]) {
    const refused = await world.ask('PUT', 'sys/audit/second', { type: 'file', options: { file_path: path } })
    assert.equal(refused.status, 400)
    assert.match(refused.body.errors[0] ?? '', /the audit device file\/ writes to this file/)
  }
  await assertWhole(file)
})

test('a device does not create a file with the name of a database file', async (t) => {
  const world = await CoreWorld.open(t)
  for (const end of ['-journal', '-wal', '-shm']) {
    const options = { file_path: join(world.directory, `other.db${end}`) }
    assert.equal((await world.ask('POST', 'sys/audit/x', { type: 'file', options })).status, 400, end)
  }
})

test('the last use of a token that no device records is its last, and leaves nothing', async (t) => {
  const { file, world } = await withFile(t)
  const before = tokenPathsIn(world)
  const { body } = await world.ask('POST', 'auth/token/create', { policies: ['default'], num_uses: 1 })
  const { accessor, client_token: token } = body.auth as { accessor: string; client_token: string }
  renameSync(file, `${file}.1`)
  mkdirSync(file)
  assert.equal((await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).status, 500)
  rmdirSync(file)
  await world.core.audit?.probe()
  assert.equal((await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).status, 403)
  assert.notEqual((await world.ask('POST', 'auth/token/lookup-accessor', { accessor })).status, 200)
  assert.deepEqual(tokenPathsIn(world), before, 'nothing of it is left')
})

test('a disabled device stays disabled after a restart', async (t) => {
  const { file, world } = await withFile(t)
  await write(world)
  const { devices } = world.core.open.auditing
  await Promise.all([devices.saveHeads(), world.ask('DELETE', 'sys/audit/file'), devices.saveHeads()])
  await devices.saveHeads()
  assert.deepEqual(world.core.barrier.paths('local/audit/'), [], 'its chain is gone, too')
  await world.close()
  const again = await CoreWorld.reopen(world.directory, world.keys, { engines: [kv] })
  t.after(() => again.store.close())
  assert.deepEqual((await again.ask('GET', 'sys/audit')).body.data, {})
  await assertWhole(file)
  await again.core.seal()
})

test('lines of more than a megabyte are complete and readable by the next process', async (t) => {
  const { file, world } = await withFile(t, { log_raw: 'true' })
  const value = `planted-${'\u00e4"\\\n'.repeat(1 << 18)}`
  assert.equal((await write(world, value)).status, 200)
  const before = await assertWhole(file)
  const line = auditLinesIn(file).find(({ request }) => request?.data?.['data'] !== undefined)
  assert.deepEqual(line?.request.data, { data: { value } }, 'raw lines have values')
  await world.close()
  const again = await CoreWorld.reopen(world.directory, world.keys, { engines: [kv] })
  t.after(() => again.store.close())
  assert.equal((await write(again, value)).status, 200)
  assert.equal(await assertWhole(file), before + 2)
  await again.core.seal()
})

test('recorded lines do not count toward the limit of queued lines', async (t) => {
  const { world } = await withFile(t, {})
  const device = world.core.audit?.find('file/')
  const json = JSON.stringify({ time: '', text: 'x'.repeat(4 << 20) })
  for (let at = 0; at < 17; at++) await device?.record(json)
  assert.equal(device?.failures, 0)
})

test('the options of a device determine which values its lines show', async (t) => {
  const { file, world } = await withFile(t, {
    hmac_accessor: 'false',
    elide_list_responses: 'true',
    prefix: 'outpost ',
  })
  await world.ask('POST', 'sys/mounts/plain', { type: 'kv' })
  await world.ask('POST', 'sys/mounts/plain/tune', {
    audit_non_hmac_request_keys: ['shown'],
    audit_non_hmac_response_keys: ['told'],
  })
  await world.ask('PUT', 'sys/config/auditing/request-headers/X-Shown', { hmac: false })
  await world.ask('PUT', 'sys/config/auditing/request-headers/X-Hidden', { hmac: true })
  const headers = { 'x-shown': 'seen', 'x-hidden': 'planted-header', 'x-other': 'planted-other' }
  const given = { shown: 'in requests', told: 'in answers', hidden: 'planted-hidden' }
  await world.ask('POST', 'plain/app', given, { headers })
  await world.ask('GET', 'plain/app')
  await world.ask('LIST', 'plain')
  const text = readFileSync(file, 'utf8')
  for (const line of text.trimEnd().split('\n')) assert.ok(line.startsWith('outpost {'), line)
  for (const planted of Object.values(headers).slice(1)) assert.ok(!text.includes(planted), planted)
  assert.ok(!text.includes('planted-hidden'))
  const lines = auditLinesOf(text.replaceAll(/^outpost /gm, ''))
  const [asked, , , read, , listed] = lines.slice(-6)
  const hash = async (input: string) =>
    String((await world.ask('PUT', 'sys/audit-hash/file', { input })).body.data['hash'])
  assert.deepEqual(asked?.request.data, {
    shown: 'in requests',
    told: await hash('in answers'),
    hidden: await hash('planted-hidden'),
  })
  assert.deepEqual(asked?.request['headers'], { 'x-shown': ['seen'], 'x-hidden': [await hash('planted-header')] })
  assert.deepEqual(read?.response?.data, {
    shown: await hash('in requests'),
    told: 'in answers',
    hidden: await hash('planted-hidden'),
  })
  assert.deepEqual(listed?.response?.data, { keys: 1 })
  await world.ask('SCAN', 'plain')
  const wrapped = await world.ask('GET', 'plain/app', undefined, { headers: { 'x-vault-wrap-ttl': '60' } })
  const { token: wrappingToken } = wrapped.body.wrap_info as { token: string }
  const after = auditLinesOf(readFileSync(file, 'utf8').replaceAll(/^outpost /gm, ''))
  const answers = after.filter(({ type }) => type === 'response')
  const scanned = answers.findLast(({ request }) => request['operation'] === 'scan')
  assert.deepEqual(scanned?.response?.data, { keys: 1 })
  assert.ok(!readFileSync(file, 'utf8').includes(wrappingToken), 'the token of a wrapped answer is no accessor')
  assert.ok(readFileSync(file, 'utf8').includes(await hash(wrappingToken)))
  const self = await world.ask('GET', 'auth/token/lookup-self')
  assert.equal(asked?.auth?.['accessor'], self.body.data['accessor'], 'the accessor is plain')
  await assertWhole(file)
})

test('a large body of a caller without a token is not parsed for the audit', async (t) => {
  const { file, world } = await withFile(t, { log_raw: 'true' })
  const body = { data: { value: 'x'.repeat(2 << 20) } }
  assert.equal((await world.ask('POST', 'kept/data/db', body, { token: 's.wrong' })).status, 403)
  const lines = auditLinesIn(file).slice(-2)
  assert.deepEqual(
    lines.map(({ request, type }) => [type, request.data]),
    [
      ['request', undefined],
      ['response', undefined],
    ],
  )
})
