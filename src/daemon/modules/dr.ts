/**
 * Connects the dr module: the store that it ships, the core that opens and closes with the role, and the endpoints that change the
 * role. The dr module itself has no keys.
 */
import type { Barrier } from '../../storage/barrier/barrier.ts'
import { KEYRING_PATH } from '../../storage/barrier/keyring.ts'
import type { Config } from '../../config/load.ts'
import { writeAddress } from '../setup/files.ts'
import { unwrapAt } from './unwrap.ts'
import { messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { type MembershipKey, parseBundle, Replication, type RoleTransitions } from '../../dr/replication.ts'
import { certificatesIn } from '../../dr/state/replication-state.ts'
import type { SecretsCore } from '../../secrets/core.ts'
import type { ReplicationMode, DrReplication, ReplicationSide } from '../../secrets/dr-endpoints/dr-replication.ts'
import type { SqliteStore } from '../../storage/store/store.ts'

/** Key purpose of the proofs of membership. */
const MEMBERSHIP_PURPOSE = 'outpost replication membership'
/** Local to this machine; kept when a cluster becomes a secondary. */
const OPERATION_TOKEN_PATH = 'local/replication/operation-token'

const INITIAL_SYNC_INCOMPLETE =
  'the initial sync is not complete: its entries could not be decrypted, even with "force". Wait for the sync, or ' +
  'restore a snapshot'

export interface ReplicationOptions {
  readonly config: Config
  readonly version: string
  readonly logger: Logger
  readonly store: SqliteStore
  readonly barrier: Barrier
  /** API address of this process; empty while unknown. */
  readonly apiAddress: () => string
}

export class ReplicationPart implements ReplicationSide {
  readonly unwrap = unwrapAt
  readonly #options: ReplicationOptions
  readonly dr: DrReplication
  #core: SecretsCore | undefined
  #replication: Replication | undefined
  /** The last known status, for metrics and readiness, which do not wait. */
  #last: Readonly<Record<string, unknown>> = { mode: 'disabled' }
  #stopWatching: (() => void) | undefined

  constructor(options: ReplicationOptions) {
    this.#options = options
    this.dr = this.#endpoints()
  }

  readonly operationToken = operationTokenIn(() => this.#options.store)

  get mode(): ReplicationMode {
    return this.#replication?.mode ?? 'disabled'
  }

  /** PEM of the certificates of the replication link. */
  get certificates(): readonly string[] {
    return certificatesIn(this.#options.store)
  }

  /** Why the server stays sealed: its replication role was changed by another program. */
  get refusal(): string | undefined {
    return this.#replication?.refusal
  }

  get last(): Readonly<Record<string, unknown>> {
    return this.#last
  }

  /** Continues in the role of the database; `core` opens and closes with the role from now on. */
  async open(core: SecretsCore): Promise<void> {
    const { barrier, config, logger, store, version } = this.#options
    this.#core = core
    this.#replication = await Replication.open({
      store,
      logger,
      version,
      settings: config.server.replication,
      dataDir: config.dataDir,
      listenAddress: { host: config.addresses.cluster, port: config.ports.cluster },
      addresses: () => ({ api: this.#options.apiAddress(), cluster: this.clusterAddress }),
      secrets: {
        protect: (name, value) => barrier.protect(name, value),
        reveal: (name, value) => barrier.reveal(name, value),
      },
      membership: membershipOf(barrier),
      transition: this.#transition(),
    })
    await this.#endOperationToken()
    this.#stopWatching = store.onAppended(() => this.#checkHeldKey())
    this.#noteAddress()
    await this.refresh()
  }

  /** Removes an operation token that a crash left after the promotion that used it. */
  async #endOperationToken(): Promise<void> {
    const isKept = this.operationToken.read() !== undefined || this.operationToken.generation !== undefined
    if (this.mode !== 'secondary' && isKept) await this.operationToken.write(undefined)
  }

  /** See `ReplicationSide`. */
  async unsealed(): Promise<void> {
    await this.#replication?.unsealed()
  }

  /** Stops; the role stays for the next start. */
  async close(): Promise<void> {
    this.#stopWatching?.()
    await this.#replication?.close()
  }

  /** For metrics and readiness. Never rejects. */
  async refresh(): Promise<void> {
    try {
      await this.#status()
    } catch (error) {
      this.#options.logger.warn('replication status unavailable', { error: messageOf(error) })
    }
  }

  async #status(): Promise<Readonly<Record<string, unknown>>> {
    this.#last = (await this.#replication?.status()) ?? { mode: 'disabled' }
    return this.#last
  }

  /** Where other clusters reach the replication link of this server, `host:port`. */
  get clusterAddress(): string {
    const { config } = this.#options
    const { cluster } = config.advertise
    const { listening } = this.#replication ?? {}
    const port = listening?.port ?? config.ports.cluster
    if (cluster !== undefined) return cluster.includes(':') && !cluster.endsWith(']') ? cluster : `${cluster}:${port}`
    const host = listening?.host ?? config.addresses.cluster
    return `${host.includes(':') ? `[${host}]` : host}:${port}`
  }

  #noteAddress(): void {
    const { config, logger } = this.#options
    if (this.#replication?.listening) writeAddress(config.dataDir, this.clusterAddress, logger, 'cluster.addr')
  }

  #transition(): RoleTransitions {
    const { barrier, logger } = this.#options
    return {
      toSecondary: async () => this.#core?.enterStandby(),
      wiped: async () => barrier.standby.forget(),
      beforePrimary: () => this.#verify(),
      toPrimary: async () => this.#core?.leaveStandby(),
      fenced: async () => logger.error('primary was replaced, writes are refused; next: outpost operator dr demote'),
    }
  }

  /** Repairs entries that another program changed, from the primary. */
  repair(): void {
    this.#replication?.repair()
  }

  /** Rejects with a Refusal if the barrier cannot open the entries, or some differ from those of the primary. */
  async #verify(): Promise<void> {
    const { barrier, store } = this.#options
    if (!store.isWhole) throw new Refusal('conflict', INITIAL_SYNC_INCOMPLETE)
    await barrier.standby.verified(() => undefined, true)
  }

  /** Detects a rekey of the primary: the held root key is then invalid. */
  #checkHeldKey(): void {
    const { barrier, logger, store } = this.#options
    if (!barrier.standby.isHeld || this.mode !== 'secondary') return
    try {
      if (store.get(KEYRING_PATH) === undefined || barrier.standby.fits()) return
    } catch (error) {
      logger.error('keyring of the primary unreadable', { error: messageOf(error) })
      return
    }
    logger.warn('this secondary is sealed: its primary has another root key (a rekey); next: outpost operator unseal')
  }

  /** The services of the endpoints. */
  #endpoints(): DrReplication {
    const replication = () => {
      if (!this.#replication) throw new Error('replication has not started')
      return this.#replication
    }
    const mode = () => this.mode
    const fence = () => this.#replication?.fence
    const brief = () => this.#replication?.brief ?? { mode: 'disabled', sync: 'off' }
    const address = () => this.#replication?.primaryAddress
    const warnings = () => this.#replication?.warnings ?? []
    const listening = async (change: Promise<void>) => {
      await change
      this.#noteAddress()
    }
    return {
      get mode() {
        return mode()
      },
      get primaryAddress() {
        return address()
      },
      get brief() {
        return brief()
      },
      get fence() {
        return fence()
      },
      get warnings() {
        return warnings()
      },
      status: () => this.#status(),
      enablePrimary: (options) => listening(replication().enablePrimary(options)),
      demote: (options) => replication().demote(options),
      disable: () => replication().disable(),
      issueSecondary: (options) => replication().issueSecondary(options),
      revokeSecondary: (id) => replication().revokeSecondary(id),
      generatePublicKey: () => replication().generatePublicKey(),
      openSealedBundle: (token) => replication().openSealedBundle(token),
      parseBundle,
      enableSecondary: (bundle) => replication().enableSecondary(parseBundle(bundle)),
      promote: (options) => listening(replication().promote(options)),
      updatePrimary: (to) => replication().updatePrimary('bundle' in to ? { bundle: parseBundle(to.bundle) } : to),
      reindex: (options) => replication().reindex(options),
      merkleCheck: () => replication().merkleCheck(),
    }
  }
}

/** Order: a new token writes the entry first, a removal the generation first, so a kill in between leaves no valid token. */
function operationTokenIn(store: () => SqliteStore): ReplicationSide['operationToken'] {
  return {
    read: () => store().get(OPERATION_TOKEN_PATH)?.value,
    get generation() {
      return store().seenGeneration
    },
    async write(entry, generation) {
      if (!entry) await store().setSeenGeneration(undefined)
      const puts = entry ? [{ path: OPERATION_TOKEN_PATH, value: entry }] : []
      await store().commit({ puts, deletes: entry ? [] : [OPERATION_TOKEN_PATH] })
      if (entry) await store().setSeenGeneration(generation)
    },
  }
}

/** The key of the open barrier, or the one that a secondary holds. */
function membershipOf(barrier: Barrier): MembershipKey {
  return {
    get isSealed() {
      return barrier.isSealed && !barrier.standby.isHeld
    },
    codeOf(text) {
      try {
        return (barrier.isSealed ? barrier.standby : barrier).codeOf(MEMBERSHIP_PURPOSE, text)
      } catch (error) {
        if (error instanceof Refusal) return undefined
        throw error
      }
    },
  }
}
