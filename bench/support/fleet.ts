/**
 * A server with a fleet in memory, in its own process: real signatures, roster and listener; an
 * in-memory bus and no database. Controlled over IPC by `bench/roster.ts`.
 */
import { createPublicKey, generateKeyPairSync, type KeyObject, verify } from 'node:crypto'
import { createServer } from 'node:http'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { digestOf, type NodeMessage, type NodeState, signNodeMessage } from '../../src/cluster/roster/node-messages.ts'
import { MemoryBroker } from '../../src/cluster/nats/message-bus.ts'
import { RosterListener } from '../../src/cluster/roster/roster-listener.ts'
import { Followers } from '../../src/host/logs/follow/followers.ts'
import { fsLogs } from '../../src/host/logs/task-logs.ts'
import { Roster } from '../../src/cluster/roster/roster.ts'
import { NO_STORE } from '../../src/cluster/roster/roster-records.ts'
import { ServerApi } from '../../src/cluster/api/server-operations.ts'
import { Subjects } from '../../src/cluster/nats/subjects.ts'
import { Listener } from '../../src/http/listener.ts'
import { Router } from '../../src/http/router.ts'
import type { Logger } from '../../src/platform/log.ts'
import { agentPermissions } from '../../src/telemetry/agent-permissions.ts'
import { openAssets } from '../../src/ui/assets.ts'
import { uiOperations } from '../../src/ui/ui.ts'

export interface FleetSize {
  readonly nodes: number
  readonly allocationsEach: number
}

export type Order =
  | ({ readonly kind: 'fill' } & FleetSize)
  | { readonly kind: 'beats'; readonly perSecond: number; readonly seconds: number }
  | { readonly kind: 'blocks' }

export interface Filled {
  readonly port: number
  /** Sends the bytes of `/v1/nodes` from memory. */
  readonly barePort: number
  readonly rssMiB: number
  readonly fillSeconds: number
  readonly nodes: number
  readonly allocations: number
}

export interface Beaten {
  /** CPU time of this process per heartbeat. */
  readonly microseconds: number
  /** CPU time of only verifying the signature. */
  readonly bareMicroseconds: number
  /** Share of one core that they took. */
  readonly share: number
}

/** Longest event loop delay in milliseconds since the last request for it. */
export interface Blocked {
  readonly ms: number
}

interface Node {
  readonly id: string
  readonly key: { readonly privateKey: KeyObject; readonly publicKey: Buffer }
  readonly digest: string
  sequence: number
}

const uuid = (kind: string, serial: number) =>
  `${Math.imul(serial + 1, 0x9e3779b1) >>> 0}`.padStart(8, '0').slice(0, 8) +
  `-0000-4000-${kind}-${serial.toString(16).padStart(12, '0')}`

function stateOf(serial: number, allocationsEach: number): NodeState {
  const id = uuid('8000', serial)
  const attributes: Record<string, string> = { 'os.name': 'debian', 'driver.raw_exec': '1', 'kernel.name': 'linux' }
  for (let at = 0; at < 25; at++) attributes[`attribute.number.${at}`] = `value ${at} of ${serial}`
  const node = {
    id,
    name: `host-${serial}`,
    datacenter: 'dc1',
    nodeClass: '',
    nodePool: 'default',
    version: '0.1.0',
    httpAddress: `10.0.${serial >> 8}.${serial & 255}:4646`,
    tls: false,
    attributes,
    meta: { rack: `r${serial % 100}` },
    resources: { cpuMhz: 5000, cores: 4, memoryBytes: 16 << 20, diskBytes: 0 },
  }
  const allocations = Array.from({ length: allocationsEach }, (_, at) => ({
    id: uuid('9000', serial * allocationsEach + at),
    name: `job-${at}.group[${serial}]`,
    namespace: 'default',
    jobId: `job-${at}`,
    taskGroup: 'group',
    desiredStatus: 'run' as const,
    clientStatus: 'running' as const,
    createTimeMs: 1_700_000_000_000 + at,
    tasks: [{ name: 'task', state: 'running' as const, failed: false, startedAtMs: 1_700_000_001_000 }],
  }))
  return { node, allocations }
}

const broker = new MemoryBroker()
const bus = broker.connect()
const subjects = new Subjects('global')
const silence = () => undefined
const logger: Logger = {
  trace: silence,
  debug: silence,
  info: silence,
  warn: silence,
  error: silence,
  named: () => logger,
  enabled: () => false,
}
const nodes: Node[] = []
const delay = monitorEventLoopDelay({ resolution: 1 })

function messageOf(node: Node, state?: NodeState): { subject: string; bytes: Buffer } {
  const order = { version: 1, run: 1, sequence: ++node.sequence, digest: node.digest }
  const kind = state ? 'state' : 'beat'
  const message: NodeMessage = state
    ? { kind: 'state', ...order, node: state.node, allocations: [...state.allocations] }
    : { kind: 'beat', ...order }
  const subject = subjects.roster(node.id, kind)
  return { subject, bytes: signNodeMessage(message, subject, node.key) }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))
const APPLY_MS = 60_000

async function applied(roster: Roster, nodeCount: number): Promise<void> {
  const endMs = performance.now() + APPLY_MS
  do await turn()
  while (roster.nodeCount < nodeCount && performance.now() < endMs)
}

async function fill({ nodes: count, allocationsEach }: FleetSize): Promise<Filled> {
  const roster = new Roster({ store: NO_STORE, logger })
  const facts = { name: 's', datacenter: 'dc1', version: '0', id: '', address: () => '127.0.0.1:1' }
  const servers = { list: async () => [] }
  const api = new ServerApi({ roster, region: 'global', facts, servers, collect: async () => undefined, logger })
  new RosterListener({ bus, subjects, roster, ownNodeId: undefined }).start()
  // Only some of the nodes send heartbeats at a time here; the others must not count as silent.
  setInterval(() => roster.resetHeartbeats(), 5000).unref()
  const startMs = performance.now()
  for (let serial = 0; serial < count; serial++) {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519')
    const key = { privateKey, publicKey: publicKey.export({ format: 'der', type: 'spki' }).subarray(-32) }
    const state = stateOf(serial, allocationsEach)
    const node: Node = { id: state.node.id, key, digest: digestOf(state), sequence: 0 }
    nodes.push(node)
    const { subject, bytes } = messageOf(node, state)
    bus.publish(subject, bytes)
    // Large states are applied in slices, and refused while too many of them wait.
    if (serial % 50 === 0) await applied(roster, serial - 50)
  }
  await applied(roster, count)
  const fillSeconds = (performance.now() - startMs) / 1000
  const { port, barePort } = await listen(api)
  globalThis.gc?.()
  await turn()
  const rssMiB = process.memoryUsage.rss() / 1024 ** 2
  return { port, barePort, rssMiB, fillSeconds, nodes: roster.nodeCount, allocations: roster.allocationCount }
}

const noLogs = fsLogs.in({
  allocations: { get: () => undefined, all: () => [].values() },
  followers: new Followers({ limit: 0, logger }),
})

async function listen(api: ServerApi): Promise<{ port: number; barePort: number }> {
  const listener = new Listener({
    host: '127.0.0.1',
    port: 0,
    headers: [],
    router: new Router([...api.operations(noLogs), agentPermissions.in(undefined), ...uiOperations(openAssets())]),
    logger,
    resolve: () => ({ accessor: '', allowsNode: () => true, allowsAgent: () => true, allowsNamespace: () => true }),
    limits: {
      connectionsPerClient: 0,
      headerBytesMax: 16_384,
      bodyBytesMax: 1 << 20,
      headTimeoutMs: 10_000,
      requestTimeoutMs: 90_000,
      idleTimeoutMs: 120_000,
      tlsHandshakeTimeoutMs: 5000,
      stallTimeoutMs: 300_000,
    },
  })
  const { port } = await listener.listen()
  const body = Buffer.from(await (await fetch(`http://127.0.0.1:${port}/v1/nodes`)).arrayBuffer())
  const bare = createServer((_request, response) => void response.end(body))
  await new Promise<void>((resolve) => bare.listen(0, '127.0.0.1', resolve))
  const address = bare.address()
  return { port, barePort: typeof address === 'object' && address ? address.port : 0 }
}

async function beats(perSecond: number, seconds: number): Promise<Beaten> {
  const messages = Array.from({ length: perSecond * seconds }, (_, at) => nodes[at % nodes.length])
    .filter((node) => node !== undefined)
    .map((node) => messageOf(node))
  const cpu = process.cpuUsage()
  const startMs = performance.now()
  for (const [at, { subject, bytes }] of messages.entries()) {
    bus.publish(subject, bytes)
    if (at % 10 !== 9) continue
    const aheadMs = ((at + 1) / perSecond) * 1000 - (performance.now() - startMs)
    if (aheadMs > 1) await new Promise((resolve) => setTimeout(resolve, aheadMs))
    else await turn()
  }
  await turn()
  const wallMs = performance.now() - startMs
  const used = process.cpuUsage(cpu)
  const microseconds = (used.user + used.system) / messages.length
  return { microseconds, bareMicroseconds: bareVerify(messages), share: (used.user + used.system) / 1000 / wallMs }
}

/** Verifies the same number of signatures, with existing keys. */
function bareVerify(messages: readonly { subject: string; bytes: Buffer }[]): number {
  const prefix = Buffer.from('302a300506032b6570032100', 'hex')
  const ready = messages.map(({ subject, bytes }) => ({
    signed: Buffer.concat([Buffer.from(subject), Buffer.of(0), bytes.subarray(97)]),
    signature: bytes.subarray(33, 97),
    key: createPublicKey({ key: Buffer.concat([prefix, bytes.subarray(1, 33)]), format: 'der', type: 'spki' }),
  }))
  const cpu = process.cpuUsage()
  for (const { signed, signature, key } of ready) {
    if (!verify(null, signed, key, signature)) throw new Error('a signature does not fit')
  }
  const used = process.cpuUsage(cpu)
  return (used.user + used.system) / messages.length
}

process.on('message', (order: Order) => {
  const answer = async (): Promise<Filled | Beaten | Blocked> => {
    if (order.kind === 'fill') return fill(order)
    if (order.kind === 'beats') return beats(order.perSecond, order.seconds)
    const ms = delay.max / 1e6
    delay.reset()
    delay.enable()
    return { ms: Number.isFinite(ms) ? ms : 0 }
  }
  void answer().then((value) => process.send?.(value))
})
process.on('disconnect', () => process.exit(0))
