/** PUB commands as they arrive at the other end of a real socket. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, createServer, Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { SocketPublisher } from '../../../src/cluster/nats/publisher.ts'
import { eventually } from '../../helpers/eventually.ts'

const NOTHING = new Uint8Array(0)

async function connected(t: TestContext) {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const socket = connect(typeof address === 'object' && address ? address.port : 0, '127.0.0.1')
  const [[other]] = await Promise.all([once(server, 'connection'), once(socket, 'connect')])
  assert.ok(other instanceof Socket)
  t.after(() => {
    socket.destroy()
    other.destroy()
    server.close()
  })
  const parts: Buffer[] = []
  other.on('data', (bytes: Buffer) => void parts.push(bytes))
  return { socket, other, publisher: new SocketPublisher(socket), got: () => Buffer.concat(parts) }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

test('messages of one iteration are written after it, in order, and their memory can be reused', async (t) => {
  const { socket, publisher, got } = await connected(t)
  const memory = Buffer.from('first')
  publisher.publish('a.b', memory, '', NOTHING)
  memory.fill('x')
  publisher.publish('c.d', Buffer.from('sec'), 'r.1', Buffer.from('ond'))
  await Promise.resolve()
  publisher.publish('e', NOTHING, '', NOTHING)
  assert.equal(socket.bytesWritten, 0)
  const expected = 'PUB a.b 5\r\nfirst\r\nPUB c.d r.1 6\r\nsecond\r\nPUB e 0\r\n\r\n'
  await turn()
  assert.equal(socket.bytesWritten, expected.length)
  await eventually(() => got().length === expected.length)
  assert.equal(got().toString(), expected)
})

test('any number of messages of any size arrives unchanged, also if the other side reads late', async (t) => {
  const { other, publisher, got } = await connected(t)
  other.pause()
  const expected: Buffer[] = []
  let random = 7
  for (let message = 0; message < 600; message++) {
    random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0
    // Small ones mostly, some larger than a buffer.
    const data = Buffer.alloc(message % 50 === 49 ? 200_000 : random % 20_000, message % 251)
    expected.push(Buffer.from(`PUB s.${message} ${data.length + 2}\r\n..`), Buffer.from(data), Buffer.from('\r\n'))
    publisher.publish(`s.${message}`, Buffer.from('..'), '', data)
    data.fill('x')
    if (message % 7 === 0) await turn()
    if (message === 400) other.resume()
  }
  const whole = Buffer.concat(expected)
  await eventually(() => got().length === whole.length)
  assert.ok(got().equals(whole))
})

test('held messages wait for the end of the iteration, for any amount', async (t) => {
  const { socket, publisher, got } = await connected(t)
  const large = Buffer.alloc(300_000)
  publisher.publish('a', large, '', NOTHING)
  assert.ok(socket.bytesWritten > 0)
  await turn()
  const before = socket.bytesWritten
  publisher.hold()
  for (const subject of ['a', 'b', 'c']) publisher.publish(subject, large, '', NOTHING)
  assert.equal(socket.bytesWritten, before)
  await eventually(() => got().length > 1_200_000)
  assert.ok(got().includes('PUB c 300000\r\n'))
})

test('a subject with white space or control characters is refused, and nothing is sent', async (t) => {
  const { socket, publisher } = await connected(t)
  for (const subject of ['', 'a b', 'a\r\nPUB b 0', 'ä', 'a\tb', 'a\u0000']) {
    assert.throws(() => publisher.publish(subject, NOTHING, '', NOTHING), /visible ASCII/)
    if (subject !== '') assert.throws(() => publisher.publish('a', NOTHING, subject, NOTHING), /visible ASCII/)
  }
  await turn()
  assert.equal(socket.bytesWritten, 0)
})
