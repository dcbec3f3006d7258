/**
 * Replication for disaster recovery, joined: the store that is shipped, the room that ships it and knows no keys, the core that
 * closes and opens with the role, and the endpoints that change it.
 */
import type { Barrier } from '../storage/barrier/barrier.ts'
import { KEYRING_PATH } from '../storage/barrier/keyring.ts'
import type { Config } from '../config/load.ts'
import { writeAddress } from './files.ts'
import { unwrapAt } from './unwrap.ts'
import { messageOf, Refusal } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import { type MembershipKey, parseBundle, Replication, type Transition } from '../dr/replication.ts'
import { certificatesIn } from '../dr/state/state.ts'
import type { SecretsCore } from '../secrets/core.ts'
import type { DrMode, DrReplication, ReplicationSide } from '../secrets/dr/dr-replication.ts'
import type { SqliteStore } from '../storage/store/store.ts'

/** Of the codes that members of a replication set prove their membership with. */
const MEMBERSHIP_PURPOSE = 'outpost replication membership'
/** Of this machine alone, and not removed with the data of a cluster that becomes a secondary. */
const OPERATION_TOKEN_PATH = 'local/replication/operation-token'

const NOT_WHOLE =
  'the first copy of the primary is not whole: its entries could not be opened, and "force" does not help. Wait for the copy, or ' +
  'restore a snapshot'

export interface ReplicationOptions {
  readonly config: Config
  readonly version: string
  readonly logger: Logger
  readonly store: SqliteStore
  readonly barrier: Barrier
  /** Where clients reach this process; empty while that is not known. */
  readonly apiAddress: () => string
}

export class ReplicationPart implements ReplicationSide {
  readonly unwrap = unwrapAt
  readonly #options: ReplicationOptions
  readonly dr: DrReplication
  #core: SecretsCore | undefined
  #replication: Replication | undefined
  /** The status, as it was when it was last asked for: figures and readiness do not wait. */
  #last: Readonly<Record<string, unknown>> = { mode: 'disabled' }
  #stopWatching: (() => void) | undefined

  constructor(options: ReplicationOptions) {
    this.#options = options
    this.dr = this.#endpoints()
  }

  readonly operationToken = operationTokenIn(() => this.#options.store)

  get mode(): DrMode {
    return this.#replication?.mode ?? 'disabled'
  }

  /** PEM of the certificates that this cluster uses on the link. */
  get certificates(): readonly string[] {
    return certificatesIn(this.#options.store)
  }

  /** Why the server stays sealed: another program changed its role in replication. */
  get refusal(): string | undefined {
    return this.#replication?.refusal
  }

  get last(): Readonly<Record<string, unknown>> {
    return this.#last
  }

  /** Goes on in the role that the database says; `core` closes and opens with it from now on. */
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
      addresses: () => ({ api: this.#options.apiAddress(), cluster: this.#clusterAddress() }),
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

  /** A crash may have come between the promotion and the end of the token that it took: it is of a secondary, and of one time. */
  async #endOperationToken(): Promise<void> {
    const isKept = this.operationToken.read() !== undefined || this.operationToken.generation !== undefined
    if (this.mode !== 'secondary' && isKept) await this.operationToken.write(undefined)
  }

  /** See `ReplicationSide`. */
  async unsealed(): Promise<void> {
    await this.#replication?.unsealed()
  }

  /** Keeps the role for the next start. */
  async close(): Promise<void> {
    this.#stopWatching?.()
    await this.#replication?.close()
  }

  /** For figures and readiness. Never rejects. */
  async refresh(): Promise<void> {
    try {
      await this.#status()
    } catch (error) {
      this.#options.logger.warn('the state of replication could not be told', { error: messageOf(error) })
    }
  }

  async #status(): Promise<Readonly<Record<string, unknown>>> {
    this.#last = (await this.#replication?.status()) ?? { mode: 'disabled' }
    return this.#last
  }

  #clusterAddress(): string {
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
    if (this.#replication?.listening) writeAddress(config.dataDir, this.#clusterAddress(), logger, 'cluster.addr')
  }

  #transition(): Transition {
    const { barrier, logger } = this.#options
    return {
      toSecondary: async () => this.#core?.standDown(),
      wiped: async () => barrier.standby.forget(),
      beforePrimary: () => this.#verify(),
      toPrimary: async () => this.#core?.standUp(),
      fenced: async () =>
        logger.error('this cluster was replaced as primary: writes are refused; next: outpost operator dr demote'),
    }
  }

  /** Entries were found that another program changed: a secondary takes them from its primary. */
  repair(): void {
    this.#replication?.repair()
  }

  /** Rejects with a Refusal where the barrier would not open upon the entries, or some are not what the primary wrote. */
  async #verify(): Promise<void> {
    const { barrier, store } = this.#options
    if (!store.isWhole) throw new Refusal('conflict', NOT_WHOLE)
    await barrier.standby.verified(() => undefined, true)
  }

  /** The primary may have been given another root key: then the one that is held opens nothing any more. */
  #checkHeldKey(): void {
    const { barrier, logger, store } = this.#options
    if (!barrier.standby.isHeld || this.mode !== 'secondary') return
    try {
      if (store.get(KEYRING_PATH) === undefined || barrier.standby.fits()) return
    } catch (error) {
      logger.error('the keyring of the primary cannot be read', { error: messageOf(error) })
      return
    }
    logger.warn('this secondary is sealed: its primary has another root key (a rekey); next: outpost operator unseal')
  }

  /** What endpoints ask for, by the room. */
  #endpoints(): DrReplication {
    const room = () => {
      if (!this.#replication) throw new Error('replication has not begun')
      return this.#replication
    }
    const mode = () => this.mode
    const fence = () => this.#replication?.fence
    const brief = () => this.#replication?.brief ?? { mode: 'disabled', sync: 'off' }
    const address = () => this.#replication?.primaryAddress
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
      status: () => this.#status(),
      enablePrimary: (options) => listening(room().enablePrimary(options)),
      demote: () => room().demote(),
      disable: () => room().disable(),
      issueSecondary: (options) => room().issueSecondary(options),
      revokeSecondary: (id) => room().revokeSecondary(id),
      generatePublicKey: () => room().generatePublicKey(),
      openSealedBundle: (token) => room().openSealedBundle(token),
      parseBundle,
      enableSecondary: (bundle) => room().enableSecondary(parseBundle(bundle)),
      promote: (options) => listening(room().promote(options)),
      updatePrimary: (to) => room().updatePrimary('bundle' in to ? { bundle: parseBundle(to.bundle) } : to),
      reindex: (options) => room().reindex(options),
      merkleCheck: () => room().merkleCheck(),
    }
  }
}

/** The entry first when there is a new token, the generation first when there is none any more: a kill in between leaves no valid token. */
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
