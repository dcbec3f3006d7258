/** A core in this process behind a real listener. */
import type { TestContext } from 'node:test'
import { Listener, type ListenerLimits } from '../../src/http/listener.ts'
import type { Meter } from '../../src/http/services.ts'
import { Router } from '../../src/http/router.ts'
import type { AnyOperation } from '../../src/platform/operation.ts'
import { secretsOperations } from '../../src/secrets/request/handle-request.ts'
import type { Core } from '../../src/secrets/request/request-states.ts'
import { EVERYBODY } from './edge.ts'
import { recordingLogger, type LogLine } from './recording-logger.ts'

const LIMITS = {
  connectionsPerClient: 0,
  headerBytesMax: 16_384,
  bodyBytesMax: 33 << 20,
  headTimeoutMs: 60_000,
  requestTimeoutMs: 60_000,
  idleTimeoutMs: 60_000,
  tlsHandshakeTimeoutMs: 60_000,
  stallTimeoutMs: 60_000,
}

interface World {
  readonly core: Core
  readonly lines: LogLine[]
}

/** Resolves with the port. */
export async function listenTo(t: TestContext, world: World): Promise<number> {
  return (await listening(t, world)).port
}

interface Listening {
  readonly meter?: Meter
  readonly limits?: Partial<ListenerLimits>
  /** Operations in addition to those of the core. */
  readonly operations?: readonly AnyOperation[]
}

/** As `listenTo`, and returns the listener. */
export async function listening(t: TestContext, { core, lines }: World, options: Listening = {}) {
  const { limits, meter, operations = [] } = options
  const listener = new Listener({
    host: '127.0.0.1',
    port: 0,
    headers: [],
    router: new Router(operations, secretsOperations(core)),
    logger: recordingLogger(lines),
    resolve: () => EVERYBODY,
    limits: { ...LIMITS, ...limits },
    ...(meter && { meter }),
  })
  const { port } = await listener.listen()
  t.after(() => listener.close())
  return { listener, port }
}
