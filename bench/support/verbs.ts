/** The listener of the agent with two operations that do nothing: one by its path, one for any path, by GET and LIST. */
import { Listener } from '../../src/http/listener.ts'
import { Router } from '../../src/http/router.ts'
import { createLogger, DescriptorOutput, LogSink } from '../../src/platform/log.ts'
import { type AnyOperation, ANONYMOUS, WholeAnswer } from '../../src/platform/operation.ts'
import { schema } from '../../src/platform/schema.ts'
import { helperOptions, type Said } from './child.ts'

helperOptions()
const shape = {
  summary: '',
  target: 'server',
  input: schema({}),
  errorFormat: 'errors',
  open: true,
  authorize: () => undefined,
} as const
const trivial: AnyOperation = {
  ...shape,
  name: 'bench.trivial',
  http: ['GET /v1/trivial'],
  output: 'json',
  run: async () => ({ keys: ['a'] }),
}
const answer = new WholeAnswer(200, { 'Content-Type': 'application/json' }, '{"keys":["a"]}')
const any: AnyOperation = {
  ...shape,
  name: 'bench.any',
  http: ['GET /v1/:path', 'LIST /v1/:path'],
  output: 'answer',
  run: async () => answer,
}
const hourMs = 3_600_000
const listener = new Listener({
  host: '127.0.0.1',
  port: 0,
  headers: [],
  router: new Router([trivial], [any]),
  logger: createLogger(new LogSink({ output: new DescriptorOutput(2), level: 'error' })),
  resolve: () => ANONYMOUS,
  limits: {
    connectionsPerClient: 0,
    headerBytesMax: 16_384,
    bodyBytesMax: 1024,
    headTimeoutMs: hourMs,
    requestTimeoutMs: hourMs,
    idleTimeoutMs: hourMs,
    tlsHandshakeTimeoutMs: hourMs,
    stallTimeoutMs: hourMs,
  },
})
const { port } = await listener.listen()
process.send?.({ port } satisfies Said)
