/** A cluster without a core: a real store and a real cluster port on loopback. */
import { createHmac, randomBytes } from 'node:crypto'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import type { Logger } from '../../src/platform/log.ts'
import { Replication, type ReplicationContext, type ReplicationSettings } from '../../src/dr/replication.ts'
import type { LogLimits } from '../../src/storage/sqlite/rows.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { eventually } from './eventually.ts'
import { recordingLogger, type LogLine } from './recording-logger.ts'
import { quietPort } from './quiet-port.ts'
import { temporaryDirectory } from './temporary-directory.ts'

export const SETTINGS: ReplicationSettings = {
  sync: false,
  syncTimeoutMs: 60_000,
  fenceAfterMs: 0,
  bufferLength: 65_536,
  bufferBytes: 256 << 20,
  bandwidthBytes: 0,
}

export const MEMBERSHIP_KEY = 'the key of the set'

/** Intervals that are short for tests, with timeouts that are long enough for a busy machine. */
const TIMINGS = {
  heartbeatMs: 50,
  silenceMs: 20_000,
  answerMs: 20_000,
  retryMinMs: 10,
  retryMaxMs: 100,
  startMs: 300,
  graceMs: 300,
  gatherMs: 1,
  compareMs: 3_600_000,
  handoverMs: 20_000,
}

export interface SiteOptions {
  readonly settings?: Partial<ReplicationSettings>
  readonly timings?: Partial<typeof TIMINGS>
  readonly log?: LogLimits
  readonly version?: string
  /** Cluster ID; random by default. */
  readonly port?: number
  /** An existing directory; a temporary one by default. */
  readonly directory?: string
  readonly now?: () => number
  /** The address for others, if it differs from the listener. */
  readonly clusterAddress?: () => string
}

export class Site {
  readonly name: string
  readonly directory: string
  readonly lines: LogLine[] = []
  readonly logger: Logger = recordingLogger(this.lines)
  /** Notifications to the daemon, in order. */
  readonly transitions: string[] = []
  /** The error of a refused promotion. */
  refusal: Error | undefined
  /** The response of the daemon to a fence. */
  fencedFailure: Error | undefined
  /** The membership key of an unsealed member; undefined while sealed. */
  membershipKey: string | undefined = MEMBERSHIP_KEY
  options: SiteOptions
  store!: SqliteStore
  replication!: Replication
  #isOpen = false
  #port = 0

  static async start(t: Pick<TestContext, 'after'>, name: string, options: SiteOptions = {}): Promise<Site> {
    const site = new Site(t, name, options)
    await site.open()
    return site
  }

  private constructor(t: Pick<TestContext, 'after'>, name: string, options: SiteOptions) {
    this.name = name
    this.options = options
    t.after(() => this.close())
    this.directory = options.directory ?? temporaryDirectory(t)
  }

  async open(): Promise<void> {
    const { log } = this.options
    this.store = await SqliteStore.open(join(this.directory, 'secrets.db'), { ...(log && { log }) })
    this.#isOpen = true
    // Its peers go on asking for it while it is away: nobody else may get the port meanwhile.
    this.#port = this.options.port ?? (await quietPort())
    this.replication = await Replication.open(this.parts())
  }

  parts(): ReplicationContext {
    const told = (what: string) => () => {
      this.transitions.push(what)
      return Promise.resolve()
    }
    const { now, settings, timings, version } = this.options
    return {
      store: this.store,
      logger: this.logger,
      settings: { ...SETTINGS, ...settings },
      timings: { ...TIMINGS, ...timings },
      version: version ?? '1.0.0',
      dataDir: this.directory,
      listenAddress: { host: '127.0.0.1', port: this.#port },
      addresses: () => ({ api: `http://${this.name}`, cluster: this.clusterAddress }),
      secrets: {
        protect: (_, value) => Buffer.from(value.toReversed()),
        reveal: (_, value) => Buffer.from(value.toReversed()),
      },
      membership: this.#membership(),
      transition: {
        toSecondary: told('toSecondary'),
        wiped: told('wiped'),
        beforePrimary: async () => {
          if (this.refusal) throw this.refusal
        },
        toPrimary: told('toPrimary'),
        fenced: async () => {
          this.transitions.push('fenced')
          if (this.fencedFailure) throw this.fencedFailure
        },
      },
      ...(now && { now }),
    }
  }

  #membership() {
    const key = () => this.membershipKey
    return {
      get isSealed() {
        return key() === undefined
      },
      codeOf(text: string) {
        const own = key()
        return own === undefined ? undefined : createHmac('sha256', own).update(text).digest()
      },
    }
  }

  get clusterAddress(): string {
    const given = this.options.clusterAddress?.()
    if (given !== undefined) return given
    const { host, port } = this.replication?.listening ?? { host: '127.0.0.1', port: 1 }
    return `${host}:${port}`
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return
    this.#isOpen = false
    await this.replication?.close()
    await this.store.close()
  }

  async restart(options: SiteOptions = this.options): Promise<void> {
    await this.close()
    this.options = options
    await this.open()
  }

  /** Makes one commit. */
  put(path: string, value: string | Buffer = path): Promise<number> {
    return this.store.commit({ puts: [{ path, value: Buffer.from(value) }], deletes: [] })
  }

  async putMany(prefix: string, count: number, bytes = 100): Promise<void> {
    const value = randomBytes(bytes)
    await Promise.all(Array.from({ length: count }, (_, at) => this.put(`${prefix}/${at}`, value)))
  }

  text(path: string): string | undefined {
    const entry = this.store.get(path)
    return entry && Buffer.from(entry.value).toString()
  }

  async field(name: string): Promise<unknown> {
    return (await this.replication.status())[name]
  }

  said(pattern: RegExp): LogLine | undefined {
    return this.lines.find(({ message }) => pattern.test(message))
  }
}

/** Waits until both have the same entries and the same history. */
export async function untilSame(primary: Site, secondary: Site): Promise<void> {
  const isSame = async () => {
    const [one, other] = [primary.store.position(), secondary.store.position()]
    if (one.sequence !== other.sequence || !Buffer.from(one.checksum).equals(other.checksum)) return false
    if (!secondary.store.isWhole) return false
    const roots = await Promise.all([primary.store.tree.root(), secondary.store.tree.root()])
    return roots[0].equals(roots[1])
  }
  await eventually(isSame, () => {
    const [one, other] = [primary.store.position(), secondary.store.position()]
    const lines = secondary.lines.slice(-6).map(({ message, fields }) => `${message} ${JSON.stringify(fields)}`)
    return `${secondary.name} at ${other.sequence}, whole ${secondary.store.isWhole}, is as ${primary.name} at ${one.sequence}: ${lines.join(' | ')}`
  })
}

/** Makes one the primary of the other and waits for the initial sync. */
export async function activate(primary: Site, secondary: Site, id = secondary.name): Promise<void> {
  if (primary.replication.mode === 'disabled') await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  await attach(primary, secondary, id)
  await untilSame(primary, secondary)
}

/** Issues an activation and uses it. */
export async function attach(primary: Site, secondary: Site, id = secondary.name): Promise<void> {
  const bundle = await bundleFor(primary, id)
  if (secondary.replication.mode === 'secondary') await secondary.replication.updatePrimary({ bundle })
  else await secondary.replication.enableSecondary(bundle)
}

export async function bundleFor(primary: Site, id: string, ttlMs = 60_000) {
  const issued = await primary.replication.issueSecondary({ id, ttlMs })
  if (!('bundle' in issued)) throw new Error('it was sealed')
  return issued.bundle
}
