/** A whole host behind a real listener in this process: real files, real sockets, limits as a test likes them. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { type Host, startHost } from '../../src/host/host.ts'
import { HOST_PATHS } from '../../src/host/host-operations.ts'
import type { CrossOrigin } from '../../src/http/cross-origin.ts'
import { Listener, type ListenerLimits, type TlsFiles } from '../../src/http/listener.ts'
import type { Meter } from '../../src/http/meter.ts'
import { PathLog } from '../../src/http/path-log.ts'
import { Router } from '../../src/http/router.ts'
import type { Fields, Level, Logger } from '../../src/kit/log.ts'
import type { AnyOperation, Identity } from '../../src/kit/operation.ts'

export const ALLOC = 'a1b2c3d4-0000-4000-8000-000000000001'
export const NODE = 'a1b2c3d4-1111-4111-8111-111111111111'
export const UNKNOWN = 'a1b2c3d4-ffff-4fff-8fff-ffffffffffff'

export interface LogLine {
  readonly level: Level
  readonly message: string
  readonly fields: Fields
}

export interface Edge {
  readonly port: number
  readonly host: Host
  readonly listener: Listener
  readonly allocDir: string
  /** Directory of the allocation `ALLOC`, whose task is `web`. */
  readonly directory: string
  /** A directory beside the allocations, for what must not be reached. */
  readonly outside: string
  readonly lines: LogLine[]
}

export interface EdgeOptions {
  readonly limits?: Partial<ListenerLimits>
  readonly followersMax?: number
  readonly resolve?: (token: string | undefined) => Identity
  readonly tls?: TlsFiles
  readonly operations?: readonly AnyOperation[]
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
  const logger = keepingLogger(lines)
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
    // Nothing here asks for it, and it starts 35 processes.
    fingerprintAfterMs: 3_600_000,
    logger,
  })
  const listener = new Listener({
    host: options.address ?? '127.0.0.1',
    port: 0,
    headers: [],
    router: new Router([...host.operations, ...(options.operations ?? [])], options.fallback, [HOST_PATHS]),
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

/** An allocation with the task `web`: a log, a file to read, a secret and a private file. */
export function makeAllocation(allocDir: string, id: string, manifest: Readonly<Record<string, unknown>> = {}): string {
  const directory = join(allocDir, id)
  for (const path of ['alloc/logs', 'alloc/data', 'web/local', 'web/secrets', 'web/private']) {
    mkdirSync(join(directory, path), { recursive: true })
  }
  writeFileSync(join(directory, 'web/local/hello.txt'), INSIDE)
  writeFileSync(join(directory, 'web/secrets/token'), SECRET)
  writeFileSync(join(directory, 'web/private/key'), SECRET)
  writeFileSync(join(directory, 'alloc/logs/web.stdout.0'), 'a line of the log\n')
  writeFileSync(
    join(directory, 'alloc.json'),
    JSON.stringify({
      ID: id,
      Namespace: 'default',
      ClientStatus: 'running',
      Tasks: { web: { State: 'running', StartedAt: '2026-11-21T10:00:00Z' } },
      ...manifest,
    }),
  )
  return directory
}

export const INSIDE = 'hello from inside, which anybody may read\n'
export const SECRET = 'S3CR3T-that-nobody-may-ever-read'

export function keepingLogger(lines: LogLine[]): Logger {
  const at =
    (level: Level) =>
    (message: string, fields: Fields = {}) =>
      void lines.push({ level, message, fields })
  const logger: Logger = {
    trace: () => undefined,
    debug: () => undefined,
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    named: () => logger,
    enabled: (level) => level !== 'trace' && level !== 'debug',
  }
  return logger
}

/** A slow machine is no fault of the code: nothing fails sooner than this. */
const PATIENCE_MS = 60_000

/** Polls until `check` gives something, which takes about `withinMs` here; fails when it does not come at all. */
export async function eventually<T>(
  check: () => T | undefined | false | Promise<T | undefined | false>,
  what: string,
  withinMs = 5000,
): Promise<T> {
  const limitMs = Math.max(withinMs, PATIENCE_MS)
  const deadlineMs = performance.now() + limitMs
  for (;;) {
    const value = await check()
    if (value !== undefined && value !== false) return value
    if (performance.now() > deadlineMs) throw new Error(`not within ${limitMs} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
