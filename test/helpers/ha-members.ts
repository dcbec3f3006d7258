/** Members of an HA cluster in the process of the test: real stores and a real nats-server with JetStream, cores without contents. */
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import type { HaCore } from '../../src/ha/ha-options.ts'
import { HaServer } from '../../src/ha/ha-server.ts'
import type { Batch } from '../../src/storage/sqlite/batch.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { jetStreamConfiguration } from '../../scripts/jetstream-configuration.ts'
import { eventually } from './eventually.ts'
import { type NatsServer, startNatsServer } from './nats-server.ts'
import { type LogLine, recordingLogger } from './recording-logger.ts'
import { temporaryDirectory } from './temporary-directory.ts'

/** Members stop before their NATS server. */
const members = new WeakMap<TestContext, HaTestMember[]>()

/** A nats-server that syncs each message. */
export function startJetStream(t: TestContext, options = {}, directory = temporaryDirectory(t)): Promise<NatsServer> {
  members.set(t, [])
  t.after(() => Promise.all((members.get(t) ?? []).map((member) => member.end())))
  return startNatsServer(t, jetStreamConfiguration(directory, options))
}

export class HaTestMember {
  readonly name: string
  readonly store: SqliteStore
  readonly server: HaServer
  readonly lines: LogLine[] = []
  /** Time of the newest snapshot that this member knows. */
  snapshotAtMs = 0
  readonly core: { state: HaCore['state']; isOpen: boolean; opened: number; nowMs: number; clockMs: number }
  connection: NatsConnection | undefined
  /** Rejects connections while true. */
  isCutOff = false

  /** `path`: of an existing database. */
  static async start(t: TestContext, nats: NatsServer, name: string, path?: string): Promise<HaTestMember> {
    const store = await SqliteStore.open(path ?? join(temporaryDirectory(t), 'secrets.db'))
    const member: HaTestMember = new HaTestMember(nats, name, store)
    store.member.joinCommitLog(member.server.commitLog)
    member.server.start()
    members.get(t)?.push(member)
    return member
  }

  private constructor(nats: NatsServer, name: string, store: SqliteStore) {
    const core: HaTestMember['core'] = { state: 'unsealed', isOpen: false, opened: 0, nowMs: 0, clockMs: 0 }
    this.name = name
    this.store = store
    this.core = core
    this.server = new HaServer({
      store,
      connect: async () => {
        if (this.isCutOff) throw new Error('cut off')
        this.connection = await connect({
          servers: [nats.url],
          name,
          reconnect: false,
          inboxPrefix: 'outpost.global.ha.inbox',
        })
        return this.connection
      },
      core: {
        get state() {
          return core.state
        },
        nowMs: () => core.nowMs,
        async open({ clockMs }) {
          core.clockMs = clockMs
          core.isOpen = true
          core.opened++
        },
        async close() {
          core.isOpen = false
        },
      },
      region: 'global',
      replicas: 1,
      name,
      serverId: `run-of-${name}`,
      version: '0.0.0',
      addresses: () => ({ api: `http://${name}`, cluster: '' }),
      snapshotAtMs: () => this.snapshotAtMs,
      logger: recordingLogger(this.lines),
    })
  }

  async end(): Promise<void> {
    await this.server.stop()
    await this.store.close()
  }

  put(path: string, value: string): Promise<number> {
    return this.store.commit(putOf(path, value))
  }

  read(path: string): string | undefined {
    return this.store.get(path)?.value && Buffer.from(this.store.get(path)?.value ?? []).toString()
  }

  /** Resolves when this server is active. */
  async active(): Promise<void> {
    await eventually(() => this.server.isServing)
  }

  /** Resolves when the member has applied the entry. */
  async has(path: string, value: string): Promise<void> {
    await eventually(() => this.read(path) === value)
  }
}

export function putOf(path: string, value: string): Batch {
  return { puts: [{ path, value: Buffer.from(value) }], deletes: [] }
}
