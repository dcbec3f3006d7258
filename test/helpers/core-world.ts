/** A secrets core in this process on a real database, called as the HTTP module calls it. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { Barrier } from '../../src/storage/barrier/barrier.ts'
import { openRootKey } from '../../src/storage/barrier/seal-entries.ts'
import type { SealSettings } from '../../src/storage/seal/static-key.ts'
import { Seal, type SealOptions } from '../../src/storage/seal/seal.ts'
import { cubbyhole } from '../../src/engines/cubbyhole/cubbyhole.ts'
import type { Engine } from '../../src/engines/framework/engine.ts'
import { type Call, ANONYMOUS, StreamedAnswer } from '../../src/platform/operation.ts'
import { SecretsCore } from '../../src/secrets/core.ts'
import { handleRequest } from '../../src/secrets/request/handle-request.ts'
import { identityEngine } from '../../src/secrets/identity/identity-engine.ts'
import type { HaSide } from '../../src/secrets/ha-endpoints/ha-side.ts'
import type { ReplicationSide } from '../../src/secrets/dr-endpoints/dr-side.ts'
import type { Verb } from '../../src/secrets/request/parse-request.ts'
import { systemEngine } from '../../src/secrets/system/system.ts'
import { tokenEngine } from '../../src/secrets/tokens/token-engine.ts'
import { SqliteStore, type Store } from '../../src/storage/store/store.ts'
import { recordingLogger, type LogLine } from './recording-logger.ts'

const VERBS: Readonly<Record<string, Verb>> = {
  GET: 'read',
  POST: 'write',
  PUT: 'write',
  PATCH: 'patch',
  DELETE: 'delete',
  LIST: 'list',
  SCAN: 'scan',
}

/** Common fields of a response; others are present too. */
export interface CoreBody {
  readonly data: Readonly<Record<string, unknown>>
  readonly errors: readonly string[]
  readonly auth: Readonly<Record<string, unknown>>
  readonly warnings: readonly string[] | null
  readonly [name: string]: unknown
}

export interface CoreAnswer {
  readonly status: number
  readonly text: string
  /** The parsed body; an empty object if there is none. */
  readonly body: CoreBody
  readonly headers: Readonly<Record<string, string>>
}

export interface AskOptions {
  /** The root token by default; null sends no token. */
  readonly token?: string | null | undefined
  readonly headers?: Readonly<Record<string, string>>
  readonly remote?: string
  /** Aborts when the caller disconnects. */
  readonly signal?: AbortSignal
}

export interface WorldOptions {
  readonly raw?: boolean
  readonly engines?: readonly Engine[]
  readonly seal?: SealSettings
  readonly sealOptions?: SealOptions
  /** Options of the database. */
  readonly wrap?: (store: Store) => Store
  readonly nowMs?: number
  /** Receives each response when it would be sent, with the request ID. */
  readonly answered?: (requestId: string, answer: CoreAnswer) => void
  readonly replication?: ReplicationSide
  readonly ha?: HaSide
  /** Unauthenticated operations on key shares; all of them by default. */
  readonly unauthed?: { rekey: boolean; generateRoot: boolean }
  readonly isIsolated?: boolean
  readonly mayAct?: () => boolean
}

export interface WorldKeys {
  /** In hexadecimal. */
  readonly unsealKey: string
  readonly rootToken: string
}

export class CoreWorld {
  readonly core: SecretsCore
  readonly store: SqliteStore
  readonly directory: string
  readonly seal: Seal
  /** The only key share, that of `initialise`. */
  unsealKey: Buffer = Buffer.alloc(0)
  readonly lines: LogLine[] = []
  rootToken = ''
  /** The machine clock in milliseconds. */
  nowMs = Date.now()
  /** The part of `nowMs` by which the machine clock was set; the rest is elapsed time. */
  setByMs = 0

  readonly #answered: WorldOptions['answered']
  #requests = 0

  private constructor(directory: string, store: SqliteStore, options: WorldOptions) {
    const { engines = [], ha, replication, seal, sealOptions, wrap = (real) => real } = options
    const isSecondary = () => replication?.dr.mode === 'secondary'
    this.directory = directory
    this.store = store
    this.nowMs = options.nowMs ?? this.nowMs
    this.#answered = options.answered
    const below = wrap(store)
    const barrier = new Barrier(below, { now: () => this.nowMs, scheduleGc: () => undefined })
    this.seal = new Seal(below, barrier, seal ?? { type: 'shamir' }, { isSecondary, ...sealOptions })
    this.core = new SecretsCore({
      barrier,
      seal: this.seal,
      engines: [cubbyhole, ...engines],
      own: (core) => [systemEngine(core), tokenEngine(core), identityEngine(core)],
      version: '0.0.0-test',
      ...(replication && { replication }),
      ...(ha && { ha }),
      ...(options.isIsolated && { isIsolated: true }),
      ...(options.mayAct && { mayAct: options.mayAct }),
      clusterName: 'test',
      logger: recordingLogger(this.lines),
      unauthed: {
        rekey: () => options.unauthed?.rekey ?? true,
        generateRoot: () => options.unauthed?.generateRoot ?? true,
      },
      time: { wall: () => this.nowMs, elapsed: () => this.nowMs - this.setByMs },
    })
  }

  /** Sets the machine clock without elapsed time. */
  setClock(byMs: number): void {
    this.nowMs += byMs
    this.setByMs += byMs
  }

  /** Initialized and active, unless `raw`. Closed and removed with the test. */
  static async open(t: TestContext, options: WorldOptions = {}): Promise<CoreWorld> {
    const directory = mkdtempSync(join(tmpdir(), 'outpost-core-'))
    t.after(() => rmSync(directory, { recursive: true, force: true }))
    const world = await CoreWorld.create(directory, options)
    t.after(() => world.store.close())
    return world
  }

  /** As `open`, in an existing directory; the caller closes its store. */
  static async create(directory: string, options: WorldOptions = {}): Promise<CoreWorld> {
    const world = new CoreWorld(directory, await SqliteStore.open(join(directory, 'secrets.db')), options)
    if (!options.raw) await world.initialise()
    return world
  }

  /** A core on an existing database, unsealed as by the next process; the caller closes its store. */
  static async reopen(directory: string, keys: WorldKeys, options: WorldOptions = {}): Promise<CoreWorld> {
    const world = new CoreWorld(directory, await SqliteStore.open(join(directory, 'secrets.db')), options)
    world.unsealKey = Buffer.from(keys.unsealKey, 'hex')
    world.rootToken = keys.rootToken
    world.unseal()
    return world
  }

  /** The arguments of `reopen`. */
  get keys(): WorldKeys {
    return { unsealKey: this.unsealKey.toString('hex'), rootToken: this.rootToken }
  }

  /** Ends like a process: only the files remain. */
  async close(): Promise<void> {
    await this.core.seal()
    await this.store.close()
  }

  async initialise(): Promise<void> {
    const none = { shares: 0, threshold: 0, pgpKeys: [] }
    const request = { unseal: { ...none, shares: 1, threshold: 1 }, recovery: none, rootTokenPgpKey: '' }
    const { keys, rootToken } = await this.seal.initialise(request, this.core.initialState())
    this.unsealKey = keys[0] ?? this.unsealKey
    this.rootToken = rootToken
    this.unseal()
  }

  unseal(): void {
    const rootKey = openRootKey(this.store, this.unsealKey)
    if (!rootKey) throw new Error('the world was not initialized')
    this.core.barrier.unseal(rootKey)
    this.core.activate()
  }

  /** `path` may have a query; a body that is not a string is sent as JSON. */
  async ask(method: string, path: string, body?: unknown, options: AskOptions = {}): Promise<CoreAnswer> {
    const [target = '', query = ''] = path.split('?')
    const headers: Record<string, string> = {}
    for (const [name, value] of Object.entries(options.headers ?? {})) {
      headers[name.toLowerCase().replaceAll('-', '_')] = value
    }
    if (method === 'PATCH') headers['content_type'] ??= 'application/merge-patch+json'
    const raw = {
      params: { path: decodeURIComponent(target) },
      query: [...new URLSearchParams(query)],
      headers,
      body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
    }
    const token = options.token === undefined ? this.rootToken : (options.token ?? undefined)
    const call: Call = {
      requestId: `test-${++this.#requests}`,
      identity: ANONYMOUS,
      signal: options.signal ?? new AbortController().signal,
      raw,
      token,
      hops: 0,
      remote: options.remote ?? '127.0.0.1',
    }
    const answer = await handleRequest(this.core, VERBS[method] ?? 'read', raw, call)
    if (answer instanceof StreamedAnswer) throw new Error('a stream is asked for through a listener')
    const text = answer.body === undefined ? '' : Buffer.from(answer.body).toString('utf8')
    const { headers: said, status } = answer
    const asked: CoreAnswer = { status, text, body: JSON.parse(text || '{}') as CoreBody, headers: said }
    this.#answered?.(call.requestId, asked)
    return asked
  }
}
