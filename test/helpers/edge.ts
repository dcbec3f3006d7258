/** A complete host behind a real listener in this process, with real files and sockets and configurable limits. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { type Host, startHost } from '../../src/host/host.ts'
import { HOST_PATHS } from '../../src/host/host-operations.ts'
import type { CrossOrigin } from '../../src/http/cross-origin.ts'
import { Listener, type ListenerLimits, type TlsFiles } from '../../src/http/listener.ts'
import type { Meter } from '../../src/http/services.ts'
import { PathLog } from '../../src/http/access-log-paths.ts'
import { Router } from '../../src/http/router.ts'
import type { AnyOperation, Identity } from '../../src/platform/operation.ts'
import { ALLOC, makeAllocation, NODE } from './allocation.ts'
import { recordingLogger, type LogLine } from './recording-logger.ts'

export interface Edge {
  readonly port: number
  readonly host: Host
  readonly listener: Listener
  readonly allocDir: string
  /** Directory of the allocation `ALLOC`, whose task is `web`. */
  readonly directory: string
  /** A directory beside the allocations, which must not be reached. */
  readonly outside: string
  readonly lines: LogLine[]
}

export interface EdgeOptions {
  readonly limits?: Partial<ListenerLimits>
  readonly followersMax?: number
  readonly resolve?: (token: string | undefined) => Identity
  readonly tls?: TlsFiles
  readonly operations?: readonly AnyOperation[]
  /** Loads further operations. */
  readonly later?: () => Promise<readonly AnyOperation[]>
  readonly fallback?: readonly AnyOperation[]
  readonly crossOrigin?: () => CrossOrigin | undefined
  readonly address?: string
  readonly meter?: Meter
}

const LIMITS: ListenerLimits = {
  connectionsPerClient: 0,
  headerBytesMax: 16_384,
  bodyBytesMax: 32 << 20,
  headTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  idleTimeoutMs: 30_000,
  tlsHandshakeTimeoutMs: 5000,
  stallTimeoutMs: 60_000,
}

export const EVERYBODY: Identity = {
  accessor: 'everybody',
  allowsNode: () => true,
  allowsAgent: () => true,
  allowsNamespace: () => true,
}

export async function startEdge(t: TestContext, options: EdgeOptions = {}): Promise<Edge> {
  const base = realpathSync(mkdtempSync(join(tmpdir(), 'outpost-edge-')))
  const allocDir = join(base, 'alloc')
  const outside = join(base, 'outside')
  mkdirSync(outside)
  const directory = makeAllocation(allocDir, ALLOC)
  const lines: LogLine[] = []
  const logger = recordingLogger(lines)
  const host = await startHost({
    allocDir,
    stateDir: join(base, 'client'),
    nodeId: NODE,
    staticMeta: {},
    version: '0',
    gc: {
      intervalMs: 3_600_000,
      diskUsageThreshold: 100,
      inodeUsageThreshold: 100,
      maxAllocs: 1000,
      parallelDestroys: 1,
    },
    followersMax: options.followersMax ?? 0,
    sampleIntervalMs: 1000,
    // Not needed here, and it starts 35 processes.
    fingerprintAfterMs: 3_600_000,
    logger,
  })
  const listener = new Listener({
    host: options.address ?? '127.0.0.1',
    port: 0,
    headers: [],
    router: new Router([...host.operations, ...(options.operations ?? [])], options.fallback, {
      families: [HOST_PATHS],
      later: options.later,
    }),
    logger,
    pathLog: new PathLog({ isFull: () => true, parts: (path) => [{ text: path, isName: true }] }),
    resolve: options.resolve ?? (() => EVERYBODY),
    limits: { ...LIMITS, ...options.limits },
    ...(options.crossOrigin ? { crossOrigin: options.crossOrigin } : {}),
    ...(options.tls ? { tls: options.tls } : {}),
    ...(options.meter ? { meter: options.meter } : {}),
  })
  const { port } = await listener.listen()
  t.after(async () => {
    await listener.close()
    await host.stop()
    rmSync(base, { recursive: true, force: true })
  })
  return { port, host, listener, allocDir, directory, outside, lines }
}
