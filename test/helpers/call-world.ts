/** A node with two test operations and a caller, connected by two message buses. */
import type { TestContext } from 'node:test'
import { type ForwardedRequest, Forwarder } from '../../src/cluster/rpc/forwarder.ts'
import type { MessageBus } from '../../src/cluster/nats/message-bus.ts'
import { AssertionIssuer } from '../../src/cluster/rpc/assertion-issuer.ts'
import { NodeAdmission } from '../../src/cluster/rpc/node-admission.ts'
import { CallServer } from '../../src/cluster/rpc/call-server.ts'
import { Subjects } from '../../src/cluster/nats/subjects.ts'
import { Refusal } from '../../src/platform/errors.ts'
import type { AnyOperation, Call, Chunk, Operation } from '../../src/platform/operation.ts'
import { isStreamHead, JsonText } from '../../src/platform/operation.ts'
import { queryInteger, queryText, schema } from '../../src/platform/schema.ts'
import { knownKeys, newKey } from './server-keys.ts'
import { recordingLogger, root } from '../host/allocations/host-fixture.ts'
import { eventually } from './eventually.ts'

const NODE = '6f1c0b9e-2f0a-4a51-9d0c-0a1b2c3d4e5f'

interface Wanted {
  readonly bytes: number
  readonly say: string
}

/** Lengths of the chunks of the stream of frames, from a heartbeat to more than one read of a large file. */
export const FRAME_CHUNKS = [2, 1, 700_000, 16_256, 16_257, 100, 100, 100, 131_072, 3, 1_000_000, 5]

/** Operations of the node; `seen` records every call and how it ended. */
function operationsFor(seen: string[]): AnyOperation[] {
  const common = { target: 'node', errorFormat: 'plain', authorize: () => undefined } as const
  const input = schema({
    bytes: queryInteger({ description: '', fallback: 0 }),
    say: queryText({ description: '', fallback: '' }),
  })
  async function* stream(wanted: Wanted, call: Call): AsyncGenerator<Chunk> {
    seen.push('begun')
    try {
      if (wanted.say === 'refuse') throw new Refusal('conflict', 'not now', { 'Retry-After': '7' })
      if (wanted.say === 'frames') {
        yield { status: 200, contentType: 'application/json', frames: true }
        for (const [index, length] of FRAME_CHUNKS.entries()) yield Buffer.alloc(length, index % 251)
        return
      }
      if (wanted.say === 'part' || wanted.say === 'cut') {
        yield { status: 200, contentLength: wanted.bytes }
        for (let at = 0; at < wanted.bytes; at += 10_000) {
          if (wanted.say === 'cut' && at >= wanted.bytes / 2) throw new Error('a secret detail')
          yield Buffer.alloc(Math.min(10_000, wanted.bytes - at), 1 + at / 10_000)
          // Separate messages, as from a slow disk.
          await new Promise((resolve) => setTimeout(resolve, 5))
        }
        return
      }
      yield { status: 200, contentType: 'text/plain', headers: { 'X-Outpost-Event': 'yes' } }
      const buffers = [Buffer.alloc(300_000), Buffer.alloc(300_000)] as const
      let turn = 0
      for (let at = 0; at < wanted.bytes && !call.signal.aborted; at += 300_000) {
        const buffer = buffers[turn++ % 2] ?? buffers[0]
        buffer.fill(turn % 251)
        yield buffer.subarray(0, Math.min(300_000, wanted.bytes - at))
      }
      if (wanted.say === 'break') throw new Error('a secret detail')
      if (wanted.say === 'stay')
        await new Promise<void>((resolve) => call.signal.addEventListener('abort', () => resolve()))
    } finally {
      seen.push('over')
    }
  }
  const streaming: Operation<Wanted, never> = {
    ...common,
    name: 'test.stream',
    summary: '',
    http: ['GET /v1/stream'],
    output: 'stream',
    input,
    run: (wanted, call) => stream(wanted, call),
  }
  const value: Operation<Wanted, unknown> = {
    ...common,
    name: 'test.value',
    summary: '',
    http: ['GET /v1/value'],
    output: 'json',
    input,
    async run({ say, bytes }) {
      if (say === 'text') return new JsonText('{"said":"as it is"}')
      if (say === 'large') return { said: '€'.repeat(bytes) }
      if (say === 'refuse') throw new Refusal('not_found', 'no such thing')
      if (say === 'fault') throw new Error('a secret detail')
      return { said: say }
    },
  }
  const caller: Operation<Wanted, unknown> = {
    ...value,
    name: 'test.caller',
    http: ['GET /v1/caller'],
    run: async (_wanted, { remote, token, identity }) => [
      remote,
      token,
      identity.accessor,
      identity.allowsNode('read'),
    ],
  }
  return [streaming, value, caller]
}

export interface World {
  readonly forwarder: Forwarder
  readonly server: CallServer
  readonly seen: string[]
  readonly buses: readonly MessageBus[]
  /** Bytes that the node has published so far. */
  readonly sent: () => number
  readonly call: (operation: string, query?: Record<string, string>, signal?: AbortSignal) => ForwardedRequest
}

export async function worldOver(t: TestContext, open: () => Promise<MessageBus> | MessageBus): Promise<World> {
  const seen: string[] = []
  const buses = [await open(), await open()] as const
  await eventually(() => buses.every(({ isConnected }) => isConnected))
  const subjects = new Subjects('global')
  const logger = recordingLogger()
  const key = newKey()
  let sentBytes = 0
  const options = {
    bus: counting(buses[1], (bytes) => (sentBytes += bytes)),
    subjects,
    as: {
      nodeId: NODE,
      admission: new NodeAdmission({
        nodeId: NODE,
        keys: knownKeys(new Set([key.publicKey])),
        isOpen: () => false,
        logger,
      }),
    },
    operations: operationsFor(seen),
    logger,
    callsMax: 50,
  }
  const server = new CallServer(options)
  const forwarder = new Forwarder({ bus: buses[0], subjects })
  server.start()
  forwarder.start({ serverId: 'caller' }, { issuer: new AssertionIssuer({ key: () => key }) })
  t.after(async () => {
    forwarder.stop()
    server.stop()
    for (const bus of buses) await bus.close()
  })
  // A subscription takes effect with a delay.
  await new Promise((resolve) => setTimeout(resolve, 100))
  return {
    forwarder,
    server,
    seen,
    buses,
    sent: () => sentBytes,
    call: (operation, query = {}, signal = new AbortController().signal) => ({
      nodeId: NODE,
      operation,
      input: { params: {}, query: Object.entries(query), headers: {}, body: undefined },
      identity: root,
      requestId: 'r-1',
      hops: 0,
      signal,
    }),
  }
}

function counting(bus: MessageBus, count: (bytes: number) => void): MessageBus {
  return {
    publish(subject, payload, reply, rest) {
      count(payload.length + (rest?.length ?? 0))
      bus.publish(subject, payload, reply, rest)
    },
    subscribe: (subject, take, queue) => bus.subscribe(subject, take, queue),
    payloadBytesMax: bus.payloadBytesMax,
    isConnected: bus.isConnected,
    onChange: (tell) => bus.onChange(tell),
    close: () => bus.close(),
  }
}

export async function collect(chunks: AsyncIterable<Chunk>) {
  const parts: Uint8Array[] = []
  let head: Chunk | undefined
  for await (const chunk of chunks) {
    if (isStreamHead(chunk)) head = chunk
    else parts.push(Buffer.from(chunk))
  }
  return { head, bytes: Buffer.concat(parts), lengths: parts.map(({ length }) => length) }
}
