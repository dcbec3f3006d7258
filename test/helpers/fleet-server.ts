/** The endpoints of a server over a roster that the test fills, with real operations and a real listener. */
import type { TestContext } from 'node:test'
import {
  type AllocationDescription,
  digestOf,
  type NodeDescription,
  type NodeState,
} from '../../src/cluster/roster/node-messages.ts'
import { Followers } from '../../src/host/logs/follow/followers.ts'
import { fsLogs } from '../../src/host/logs/task-logs.ts'
import { Roster } from '../../src/cluster/roster/roster.ts'
import { NO_STORE } from '../../src/cluster/roster/roster-records.ts'
import { ServerApi } from '../../src/cluster/api/server-operations.ts'
import { Listener } from '../../src/http/listener.ts'
import { Router } from '../../src/http/router.ts'
import type { AnyOperation, Identity } from '../../src/platform/operation.ts'
import { recordingLogger, root } from '../host/allocations/host-fixture.ts'

const LIMITS = {
  connectionsPerClient: 0,
  headerBytesMax: 16_384,
  bodyBytesMax: 1 << 20,
  headTimeoutMs: 10_000,
  requestTimeoutMs: 90_000,
  idleTimeoutMs: 120_000,
  tlsHandshakeTimeoutMs: 5000,
  stallTimeoutMs: 300_000,
}

/** A UUID with the given first eight digits; `serial` determines the rest. */
export function idOf(first: string, serial = 0): string {
  return `${first}-0000-4000-8000-${serial.toString(16).padStart(12, '0')}`
}

export function nodeOf(id: string, over: Partial<NodeDescription> = {}): NodeDescription {
  return {
    id,
    name: `name-${id.slice(0, 4)}`,
    datacenter: 'dc1',
    nodeClass: '',
    nodePool: 'default',
    version: '0.1.0',
    httpAddress: '10.0.0.1:4646',
    tls: false,
    attributes: { 'os.name': 'debian', 'driver.raw_exec': '1', 'unique.storage.bytestotal': String(5 * 1024 ** 3) },
    meta: {},
    resources: { cpuMhz: 5198, cores: 2, memoryBytes: 24_105 * 1024 ** 2, diskBytes: 0 },
    ...over,
  }
}

export function allocationOf(id: string, over: Partial<AllocationDescription> = {}): AllocationDescription {
  return {
    id,
    name: 'web.api[0]',
    namespace: 'default',
    jobId: 'web',
    taskGroup: 'api',
    desiredStatus: 'run',
    clientStatus: 'running',
    createTimeMs: 1_700_000_000_000,
    tasks: [{ name: 'server', state: 'running', failed: false, startedAtMs: 1_700_000_001_000 }],
    ...over,
  }
}

export interface FleetServer {
  readonly url: string
  readonly port: number
  readonly api: ServerApi
  readonly roster: Roster
  /** Of the roster. */
  readonly clock: { aheadMs: number }
  readonly logger: ReturnType<typeof recordingLogger>
  /** Nodes that received a request to collect garbage. */
  readonly collected: string[]
  /** A node sends its complete state, or leaves. */
  say(node: NodeDescription, allocations?: readonly AllocationDescription[]): void
  leave(nodeId: string): void
  /** Sets the identity of every following caller. */
  actAs(identity: Identity): void
  get(path: string, init?: RequestInit): Promise<{ status: number; headers: Headers; text: string; value: unknown }>
}

const noLogs = fsLogs.in({
  allocations: { get: () => undefined, all: () => [].values() },
  followers: new Followers({ limit: 0, logger: recordingLogger() }),
})

/** `logs` replaces the `fs/logs` of every node for the logs of a job. */
export async function startFleetServer(
  t: Pick<TestContext, 'after'>,
  logs: AnyOperation = noLogs,
): Promise<FleetServer> {
  const logger = recordingLogger()
  const clock = { aheadMs: 0 }
  const now = () => ({ monotonicMs: performance.now() + clock.aheadMs, wallMs: Date.now() })
  const roster = new Roster({ store: NO_STORE, logger, now })
  const collected: string[] = []
  let who = root
  const api = new ServerApi({
    roster,
    region: 'global',
    facts: { name: 's1', datacenter: 'dc1', version: '0.1.0', id: idOf('00000000'), address: () => '127.0.0.1:4646' },
    servers: { list: async () => [] },
    collect: async (nodeId) => void collected.push(nodeId),
    logger,
  })
  const listener = new Listener({
    host: '127.0.0.1',
    port: 0,
    headers: [],
    router: new Router(api.operations(logs)),
    logger,
    resolve: () => who,
    limits: LIMITS,
  })
  const { port } = await listener.listen()
  t.after(async () => {
    await listener.close()
    api.stop()
  })
  const url = `http://127.0.0.1:${port}`
  const publicKey = Buffer.alloc(32)
  let sequence = 0
  const order = () => ({ version: 1, run: 1, sequence: ++sequence })
  return {
    url,
    port,
    api,
    roster,
    clock,
    logger,
    collected,
    say(node, allocations = []) {
      const state: NodeState = { node, allocations }
      const message = {
        kind: 'state' as const,
        ...order(),
        digest: digestOf(state),
        node,
        allocations: [...allocations],
      }
      roster.apply(node.id, { message, publicKey })
    },
    leave: (nodeId) => void roster.apply(nodeId, { message: { kind: 'leave', ...order(), digest: '' }, publicKey }),
    actAs: (identity) => {
      who = identity
    },
    async get(path, init = {}) {
      const answer = await fetch(`${url}/v1/${path}`, init)
      const text = await answer.text()
      const isJson = answer.ok && answer.headers.get('content-type') === 'application/json' && !/^$|}{/.test(text)
      return { status: answer.status, headers: answer.headers, text, value: isJson ? JSON.parse(text) : undefined }
    },
  }
}

/** The IDs of a list, or another field of each record. */
export function each(value: unknown, key = 'ID'): unknown[] {
  return (value as Record<string, unknown>[]).map((record) => record[key])
}
