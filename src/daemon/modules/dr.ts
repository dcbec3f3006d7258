/**
 * Connects the dr module: the store that it ships, the core that opens and closes with the role, and the endpoints that change the
 * role. The dr module itself has no keys.
 *
 * In an HA cluster the dr module runs on the active server, from `begin` to `end`, with the state that all members share. Another member knows
 * the mode, verifies the role when it is unsealed, and drops a root key that no longer opens the keyring.
 */
import type { Barrier } from '../../storage/barrier/barrier.ts'
import { KEYRING_PATH } from '../../storage/barrier/keyring.ts'
import type { Config } from '../../config/load.ts'
import { writeAddress } from '../setup/files.ts'
import { unwrapAt } from './activation-unwrap.ts'
import { messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { type MembershipKey, parseBundle, Replication, type RoleTransitions } from '../../dr/replication.ts'
import { fenceStateOf } from '../../dr/primary/fencing.ts'
import { certificatesIn, recordIn, type ReplicationRecord, STATE_PATH } from '../../dr/state/replication-state.ts'
import { RoleCode } from '../../dr/state/role-code.ts'
import type { SecretsCore } from '../../secrets/core.ts'
import type { ReplicationMode, DrReplication, ReplicationSide } from '../../secrets/dr-endpoints/dr-side.ts'
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
  /** Set for a member of an HA cluster. */
  readonly members?: ReplicationMembers | undefined
}

export interface ReplicationMembers {
  readonly otherClusterAddresses: () => readonly string[]
}

/** Another server was active so shortly before this one that a promotion in between would have fenced that one. */
const FOLLOWS_MS = 15_000
const NOT_ACTIVE = 'this server is not the active one of its cluster: DR replication runs on the active server'

export class ReplicationPart implements ReplicationSide {
  readonly unwrap = unwrapAt
  readonly #options: ReplicationOptions
  readonly dr: DrReplication
  #core: SecretsCore | undefined
  #replication: Replication | undefined
  /** The last known status, for metrics and readiness, which do not wait. */
  #last: Readonly<Record<string, unknown>> = { mode: 'disabled' }
  #stopWatching: readonly (() => void)[] = []
  /** Of a member of an HA cluster that is not the active one. */
  #inspected: string | undefined
  #record: { readonly value: Uint8Array | undefined; readonly record: ReplicationRecord } | undefined

  constructor(options: ReplicationOptions) {
    this.#options = options
    this.dr = this.#endpoints()
  }

  readonly operationToken = operationTokenIn(() => this.#options.store)

  get mode(): ReplicationMode {
    return this.#replication?.mode ?? this.#stored.mode
  }

  /** The stored state, as a member of an HA cluster reads it while it is not the active one. Throws a Fault for a damaged state. */
  get #stored(): ReplicationRecord {
    const { store } = this.#options
    const value = store.get(STATE_PATH)?.value
    if (!this.#record || this.#record.value !== value) this.#record = { value, record: recordIn(store) }
    return this.#record.record
  }

  /** PEM of the certificates of the replication link. */
  get certificates(): readonly string[] {
    return certificatesIn(this.#options.store)
  }

  /** Why the server stays sealed: its replication role was changed by another program. */
  get refusal(): string | undefined {
    return this.#replication?.refusal ?? this.#inspected
  }

  get last(): Readonly<Record<string, unknown>> {
    return this.#last
  }

  /**
   * Continues in the role of the database; `core` opens and closes with the role from now on. A member of an HA cluster continues when it becomes
   * active.
   */
  async open(core: SecretsCore): Promise<void> {
    const { members, store } = this.#options
    this.#core = core
    this.#stopWatching = [store.onAppended(() => this.#checkHeldKey()), store.onOrder(() => this.#dropHeldKey())]
    if (members) return void this.#stored
    await this.#start()
    await this.refresh()
  }

  /** This member is active. `idleMs`: how long no server was active; undefined if that is not known. */
  async begin(idleMs: number | undefined): Promise<void> {
    await this.#start({ follows: idleMs !== undefined && idleMs < FOLLOWS_MS })
    await this.refresh()
  }

  /** This member is no longer active. Commits that wait for a secondary fail. */
  async end(): Promise<void> {
    const ending = this.#replication
    await ending?.close()
    // The mode is that of the stored state from now on.
    this.#replication = undefined
    this.#last = { mode: this.mode }
  }

  async #start(member?: { readonly follows: boolean }): Promise<void> {
    const { barrier, config, logger, members, store, version } = this.#options
    this.#replication = await Replication.open({
      store,
      logger,
      version,
      settings: config.server.replication,
      dataDir: config.dataDir,
      listenAddress: { host: config.addresses.cluster, port: config.ports.cluster },
      addresses: () => {
        const others = members?.otherClusterAddresses() ?? []
        return { api: this.#options.apiAddress(), cluster: this.clusterAddress, ...(members && { others }) }
      },
      secrets: {
        protect: (name, value) => barrier.protect(name, value),
        reveal: (name, value) => barrier.reveal(name, value),
      },
      membership: membershipOf(barrier),
      transition: this.#transition(),
      ...(member && { member }),
    })
    await this.#endOperationToken()
    this.#noteAddress()
  }

  /** Removes an operation token that a crash left after the promotion that used it. */
  async #endOperationToken(): Promise<void> {
    const { generation } = this.operationToken
    const entry = this.operationToken.read()
    const isKept = entry !== undefined || generation !== undefined
    // Another member of an HA cluster may have removed the token.
    const isRemoved = entry === undefined && generation !== undefined
    if (isRemoved || (this.mode !== 'secondary' && isKept)) await this.operationToken.write(undefined)
  }

  /** See `ReplicationSide`. */
  async unsealed(): Promise<void> {
    if (this.#replication) return this.#replication.unsealed()
    if (this.#options.members) await this.#inspect()
  }

  /** Verifies the role of a member that is not the active one. */
  async #inspect(): Promise<void> {
    const { barrier, logger, store } = this.#options
    try {
      await new RoleCode(membershipOf(barrier)).inspect(this.#stored, store)
      this.#inspected = undefined
    } catch (error) {
      this.#inspected = messageOf(error)
      logger.error('the replication role was changed by another program, the server stays sealed', {
        error: this.#inspected,
      })
      throw error
    }
  }

  /** Stops; the role stays for the next start. */
  async close(): Promise<void> {
    for (const stop of this.#stopWatching) stop()
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
    this.#last = (await this.#replication?.status()) ?? { mode: this.mode }
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

  /** Entries were replaced: a key that does not open them is of no use. */
  #dropHeldKey(): void {
    const { barrier, store } = this.#options
    if (store.get(KEYRING_PATH) === undefined) barrier.standby.forget()
    else this.#checkHeldKey()
  }

  /** Detects a rekey of the primary, or of the active server: the held root key is then invalid. */
  #checkHeldKey(): void {
    const { barrier, logger, members, store } = this.#options
    if (!barrier.standby.isHeld || (this.mode !== 'secondary' && !members)) return
    try {
      if (store.get(KEYRING_PATH) === undefined || barrier.standby.fits()) return
    } catch (error) {
      logger.error('keyring of the primary unreadable', { error: messageOf(error) })
      return
    }
    const why =
      this.mode === 'secondary'
        ? 'this secondary is sealed: its primary has a new root key after a rekey'
        : 'this server is sealed: the cluster has a new root key after a rekey'
    logger.warn(`${why}; next: outpost operator unseal`)
  }

  get #storedBrief() {
    const isBootstrapping = this.#stored.upstream !== undefined && !this.#options.store.isWhole
    return { mode: isBootstrapping ? 'bootstrapping' : this.mode, sync: 'off' }
  }

  get #storedFence() {
    const { config, store } = this.#options
    return fenceStateOf({ context: { store, settings: config.server.replication }, state: this.#stored }, undefined)
  }

  /** The services of the endpoints. */
  #endpoints(): DrReplication {
    const replication = () => {
      if (this.#replication) return this.#replication
      throw new Refusal('unavailable', this.#options.members ? NOT_ACTIVE : 'replication has not started')
    }
    const mode = () => this.mode
    const fence = () => (this.#replication ? this.#replication.fence : this.#storedFence)
    const brief = () => this.#replication?.brief ?? this.#storedBrief
    const address = () => this.#replication?.primaryAddress ?? this.#stored.upstream?.api
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
