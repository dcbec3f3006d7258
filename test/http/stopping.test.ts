/** What happens to requests while the listener goes down. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { test } from 'node:test'
import { Listener } from '../../src/http/listener.ts'
import { Router } from '../../src/http/router.ts'
import { createLogger, DescriptorOutput, LogSink } from '../../src/platform/log.ts'
import type { AnyOperation, Chunk, Identity } from '../../src/platform/operation.ts'
import { schema } from '../../src/platform/schema.ts'

const anybody: Identity = {
  accessor: 'anybody',
  allowsAgent: () => true,
  allowsNamespace: () => true,
  allowsNode: () => true,
}
const limits = {
  connectionsPerClient: 0,
  headerBytesMax: 16_384,
  bodyBytesMax: 1024,
  headTimeoutMs: 10_000,
  requestTimeoutMs: 90_000,
  idleTimeoutMs: 120_000,
  tlsHandshakeTimeoutMs: 5000,
  stallTimeoutMs: 300_000,
}
const shape = {
  target: 'server',
  input: schema({}),
  errorFormat: 'plain',
  summary: '',
  authorize: () => undefined,
} as const

async function* forEver(signal: AbortSignal): AsyncGenerator<Chunk> {
  yield { status: 200 }
  yield Buffer.from('{}')
  await new Promise((resolve) => signal.addEventListener('abort', resolve))
}

test('a stream behind a response in progress is refused during a stop, and the listener closes at once', async () => {
  const slowly = Promise.withResolvers<string>()
  const slow: AnyOperation = {
    ...shape,
    name: 'test.slow',
    http: ['GET /v1/slow'],
    output: 'json',
    run: () => slowly.promise,
  }
  const follow: AnyOperation = {
    ...shape,
    name: 'test.follow',
    http: ['GET /v1/follow'],
    output: 'stream',
    endless: () => true,
    run: (_input, call) => forEver(call.signal),
  }
  const listener = new Listener({
    host: '127.0.0.1',
    port: 0,
    router: new Router([slow, follow]),
    logger: createLogger(new LogSink({ output: new DescriptorOutput(2), level: 'error' })),
    resolve: () => anybody,
    headers: [],
    limits,
  })
  const { port } = await listener.listen()
  const socket = connect(port, '127.0.0.1')
  let answer = ''
  socket.setEncoding('utf8').on('data', (text) => (answer += text))
  socket.write('GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/follow HTTP/1.1\r\nHost: x\r\n\r\n')
  while (listener.activeExchanges === 0) await new Promise(setImmediate)
  const left = once(socket, 'close')
  const closed = listener.close()
  slowly.resolve('done')
  await Promise.all([closed, left])
  assert.match(answer, /^HTTP\/1\.1 200 OK[\s\S]*"done"/)
  // Its connection may close behind the first answer; if the second request is answered at all, it is refused.
  if (answer.includes('HTTP/1.1', 8)) assert.match(answer, /HTTP\/1\.1 503 [\s\S]*the agent is stopping, try again$/)
  assert.doesNotMatch(answer, /\{\}/)
})
