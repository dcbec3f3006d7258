/**
 * Builds the secrets core of a server: store, barrier, seal, core, and their connections to other modules. Loaded with the server role
 * only.
 */
import { mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Barrier } from '../../storage/barrier/barrier.ts'
import { EntrySetMismatch, RollbackError } from '../../storage/barrier/entry-set.ts'
import { KEY_BYTES } from '../../storage/barrier/keyring.ts'
import { sealSettings } from '../../storage/seal/static-key.ts'
import { Seal } from '../../storage/seal/seal.ts'
import type { SnapshotConfig } from '../../config/config.ts'
import type { Config } from '../../config/load.ts'
import { bucketPathOf } from '../../config/snapshot-path.ts'
import { coreEngines, ownEngines } from './engines.ts'
import { developmentKey } from '../setup/files.ts'
import { ReplicationPart } from './dr.ts'
import type { HaPart } from './ha.ts'
import { SecretsMetrics } from './secrets-metrics.ts'
import { SnapshotTime } from './snapshot-time.ts'
import { apiUrlOf, sanitizedSettings } from '../setup/settings.ts'
import { systemClock } from '../../platform/clock.ts'
import { Fault, messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { AnyOperation } from '../../platform/operation.ts'
import { foreignOwner } from '../../platform/program-file.ts'
import { SecretsCore } from '../../secrets/core.ts'
import { newRecord } from '../../secrets/mounts/mount-record.ts'
import { agentLoginOperation, secretsOperations } from '../../secrets/request/handle-request.ts'
import { snapshotOperations } from '../../secrets/snapshot-operations.ts'
import { pathParts } from '../../secrets/request/path-parts.ts'
import { isRotationDue } from '../../secrets/system/seal/system-seal-rotate.ts'
import type { ServerInfo } from '../../secrets/system/core-parts.ts'
import { restoreSnapshot, saveSnapshot } from '../../storage/snapshot/snapshot.ts'
import { DirectoryTarget } from '../../storage/snapshot/scheduled/directory-target.ts'
import { S3Target } from '../../storage/snapshot/scheduled/s3-target.ts'
import { SnapshotSchedule } from '../../storage/snapshot/scheduled/snapshot-schedule.ts'
import type { SnapshotSource } from '../../storage/snapshot/scheduled/snapshot-target.ts'
import { RollbackCheck } from '../../storage/store/rollback-check.ts'
import { type FileFault, SqliteStore } from '../../storage/store/store.ts'

/** Interval of background work. */
const TICK_MS = 5000

export interface SecretsOptions {
  readonly config: Config
  readonly version: string
  readonly logger: Logger
  /** Root token with `-dev`, which initializes and unseals the core at the start. */
  readonly devRootToken: string | undefined
  /** State of the process. */
  readonly process: {
    readonly url: string
    readonly config: Config
    readonly metrics: { json(): object; text(): Promise<string> | undefined } | undefined
  }
}

/** Other processes of the region, as the core needs them. */
interface OtherServers {
  /** Rejects with a Refusal if another server of the region has, or may have, a secrets core. */
  requireNoOtherCore(): Promise<void>
  /** The core was sealed: agents clear their token caches. */
  sealed(): Promise<void>
  readonly calls: { activeServerId: (() => string | undefined) | undefined }
}

export class SecretsModule {
  readonly core: SecretsCore
  /** Operations for every path without another operation. */
  readonly operations: readonly AnyOperation[]
  /** The same for other processes, with the operations for them only. */
  readonly forCluster: readonly AnyOperation[]
  readonly snapshots: readonly AnyOperation[]
  readonly metrics: SecretsMetrics
  /** Undefined unless `server { snapshot }` is configured. */
  readonly schedule: SnapshotSchedule | undefined
  readonly replication: ReplicationPart
  /** Undefined unless `server { ha }` is enabled. */
  readonly ha: HaPart | undefined
  /** The segments of a path that may be logged verbatim. */
  readonly pathParts = (path: string) => pathParts(this.core, path)
  readonly #store: SqliteStore
  readonly #snapshotTime: SnapshotTime
  readonly #seal: Seal
  readonly #rollbackCheck: RollbackCheck
  readonly #logger: Logger
  #cluster: OtherServers | undefined
  #timer: NodeJS.Timeout | undefined
  #isStopped = false
  /** Undoes the started parts in reverse order. */
  #undo = new AsyncDisposableStack()

  /** Opens the database. Rejects with a Fault for the operator. */
  static async open(options: SecretsOptions): Promise<SecretsModule> {
    const { auditDirectories, storagePath } = options.config.server
    const ownAudit = join(options.process.config.dataDir, 'audit')
    for (const each of [dirname(storagePath), ...(auditDirectories.includes(ownAudit) ? [ownAudit] : [])]) {
      mkdirSync(each, { recursive: true, mode: 0o700 })
    }
    const foreign = foreignOwner(storagePath)
    if (foreign) options.logger.warn(`storage is accessible only through a capability of this process: ${foreign}`)
    // Closed again if a later step fails: its thread would keep the process alive.
    await using begun = new AsyncDisposableStack()
    const store = await SqliteStore.open(storagePath)
    begun.defer(() => store.close())
    const Ha = options.config.server.ha.enabled ? (await import('./ha.ts')).HaPart : undefined
    const module = new SecretsModule(options, store, Ha)
    if (module.ha) store.member.joinCommitLog(module.ha.commitLog)
    begun.defer(() => module.ha?.stop())
    begun.defer(() => module.replication.close())
    await module.replication.open(module.core)
    if (options.devRootToken !== undefined) await module.#openForDevelopment(options.devRootToken)
    begun.defer(() => module.#rollbackCheck.write())
    begun.defer(() => module.core.seal())
    begun.defer(() => module.core.saveAuditHeads())
    begun.defer(() => module.#stopTicking())
    await module.#tick()
    module.schedule?.start()
    begun.defer(() => module.schedule?.stop())
    module.#undo = begun.move()
    return module
  }

  private constructor(options: SecretsOptions, store: SqliteStore, Ha: typeof HaPart | undefined) {
    const { config, devRootToken, logger, version } = options
    const { type, settings } = config.server.seal
    const barrier = new Barrier(store, { hasStandbys: config.server.ha.enabled })
    barrier.onFound = (error) => {
      const which = error instanceof RollbackError ? { entry: error.path, kind: error.kind } : {}
      logger.error('the database was changed by another program', { ...which, error: error.message })
      this.replication.repair()
    }
    store.onFault = (fault) => {
      if (fault) logger.error('database file displaced, writes are refused', { error: fault.text })
      else logger.info('database file restored, writes continue')
    }
    const directory = dirname(config.server.storagePath)
    store.onSpace = (isFull) => {
      if (isFull) logger.error('disk full, writes are refused', { directory })
      else logger.info('disk writable again', { directory })
      this.ha?.diskChanged(isFull)
    }
    this.#store = store
    this.#logger = logger
    const snapshotTime = new SnapshotTime(store.path, logger)
    this.#snapshotTime = snapshotTime
    this.#rollbackCheck = new RollbackCheck(store)
    // A member of an HA cluster gets what its database lacks from the commit stream.
    const warning = config.server.ha.enabled ? undefined : this.#rollbackCheck.warning
    if (warning !== undefined) logger.warn(warning)
    const serverInfo = serverInfoOf(options)
    const apiAddress = () => serverInfo.apiAddress?.() ?? ''
    this.replication = new ReplicationPart({
      config,
      version,
      logger: logger.named('replication'),
      store,
      barrier,
      apiAddress,
      ...(Ha && { members: { otherClusterAddresses: () => this.ha?.otherClusterAddresses ?? [] } }),
    })
    this.#seal = new Seal(
      store,
      barrier,
      devRootToken === undefined ? sealSettings(type, settings) : { type: 'shamir' },
      {
        // A member of an HA cluster opens the barrier only when it becomes active.
        isSecondary: () => this.replication.mode === 'secondary' || (this.ha !== undefined && !this.core.isActive),
        refusal: () => this.#rollbackCheck.refusal,
        ...(warning !== undefined && { warning }),
      },
    )
    this.ha =
      Ha &&
      new Ha(
        {
          config,
          version,
          logger: logger.named('ha'),
          store,
          apiAddress,
          clusterAddress: () => this.replication.clusterAddress,
          snapshotTime,
          replication: () => this.replication,
        },
        () => this.core,
      )
    this.ha?.openReads(this.#seal)
    this.core = new SecretsCore({
      ...(this.ha && { ha: this.ha, mayAct: () => this.ha?.isServing ?? false }),
      barrier,
      seal: this.#seal,
      engines: coreEngines,
      own: ownEngines,
      version,
      clusterName: config.name,
      logger,
      serverInfo,
      replication: this.replication,
      newClusterId: () => store.clusterId,
      requireNoOtherCore: async () => this.#cluster?.requireNoOtherCore(),
      auditDirectories: config.server.auditDirectories,
      unauthed: unauthedOf(options),
    })
    const save: SnapshotSource = (out, signal) => saveSnapshot(store, out, { signal, programVersion: version })
    this.schedule = config.server.snapshot && this.#scheduleOf(config.server.snapshot, save)
    this.metrics = new SecretsMetrics({ core: this.core, store, snapshotTime, schedule: this.schedule })
    const routed = (operation: AnyOperation) => this.ha?.routing.routed(operation) ?? operation
    this.operations = secretsOperations(this.core).map(routed)
    this.snapshots = snapshotOperations(this.core, {
      save,
      restore: (input, wanted) => restoreSnapshot(store, input, wanted),
      onSaved: () => snapshotTime.saved(),
    }).map(routed)
    // A standby forwards them to the active server.
    const forMembers = this.ha ? this.snapshots : []
    this.forCluster = [...this.operations, routed(agentLoginOperation(this.core)), ...forMembers]
  }

  join(cluster: OtherServers): void {
    this.#cluster = cluster
    const { ha } = this
    if (ha) cluster.calls.activeServerId = () => ha.activeServerId
    // Another server is active soon, and the tokens stay valid.
    this.core.onSeal(async () => {
      if (!ha?.isSteppingDown) await cluster.sealed()
    })
  }

  #scheduleOf({ intervalMs, keep, path, region, endpoint }: SnapshotConfig, source: SnapshotSource): SnapshotSchedule {
    const store = this.#store
    const bucketPath = bucketPathOf(path)
    return new SnapshotSchedule({
      intervalMs,
      keep,
      clusterId: () => store.clusterId,
      targetOf: (clusterId) =>
        bucketPath
          ? new S3Target({ ...bucketPath, region, endpoint }, clusterId)
          : new DirectoryTarget(path, clusterId),
      source,
      reasonToSkip: () => this.#reasonToSkipSnapshot(),
      clock: systemClock,
      logger: this.#logger.named('snapshot'),
      onSaved: () => this.#snapshotTime.saved(),
    })
  }

  #reasonToSkipSnapshot(): string | undefined {
    const { core } = this
    if (core.isSecondary) return 'DR secondary'
    if (this.ha?.role === 'standby') return 'standby'
    if (core.fence) return 'fenced primary'
    return this.clusterId === undefined ? 'not initialized' : undefined
  }

  /** Cluster ID, also while sealed; undefined unless initialized. The members of a replication set share it. */
  get clusterId(): string | undefined {
    try {
      return this.core.isInitialised ? this.#store.clusterId : undefined
    } catch {
      // The readiness check `storage` reports an unreadable database.
      return undefined
    }
  }

  /** For operators and other servers. */
  get coreState(): string {
    const { core } = this
    if (core.isActive) return core.fence ? 'fenced' : 'active'
    if (core.isHaStandby) return 'ha_standby'
    if (core.isSecondary && !core.isSealed) return 'standby'
    return this.clusterId === undefined ? 'uninitialized' : 'sealed'
  }

  /** False if no mount has the path. True while the core is sealed, when its mounts are unknown. */
  mayServe(path: string): boolean {
    return !this.core.isActive || this.core.find(path.replace(/^\/(?:v1\/)?/, '')) !== undefined
  }

  /** Fault of the database files; commits are refused while it lasts. */
  get fileFault(): FileFault | undefined {
    return this.#store.fault
  }

  /** The key is stored beside the data: `-dev` does not protect secrets from readers of its files. */
  async #openForDevelopment(rootToken: string): Promise<void> {
    const key = developmentKey(join(dirname(this.#store.path), 'dev.key'), KEY_BYTES)
    const one = { shares: 1, threshold: 1, pgpKeys: [] }
    const request = { unseal: one, recovery: { ...one, shares: 0, threshold: 0 }, rootTokenPgpKey: '' }
    if (!this.#seal.status.initialised) {
      const { refusal } = this.#rollbackCheck
      if (refusal !== undefined) throw new Fault(refusal)
      await this.#seal.initialise(request, this.core.initialState(rootToken, developmentMounts()), Buffer.from(key))
    }
    const isOpen = await this.#seal.unseal(key).catch((error: unknown) => {
      if (!(error instanceof Refusal) || error instanceof EntrySetMismatch) throw error
      // A secondary has the entries and key shares of its primary.
      if (this.core.isSecondary) return false
      const instead = 'start without -dev, or with another -data-dir'
      throw new Fault(`the secrets in ${this.#store.path} were not created with -dev: ${instead}`, { cause: error })
    })
    if (isOpen) await this.core.activateOrSeal()
  }

  /**
   * Background work: auto-unseal, and rotation of the encryption key. An unreadable key does not prevent the start: everything but
   * secrets works, and the next tick retries.
   */
  async #tick(said = ''): Promise<void> {
    let why = ''
    try {
      if (await this.#seal.autoUnseal()) {
        await this.core.activateOrSeal()
        for (const warning of this.#seal.status.warnings) this.#logger.warn(warning)
      }
      // Only the active server changes keys.
      if (this.core.isActive) {
        if (isRotationDue(this.core)) await this.core.barrier.rotate()
        await this.core.barrier.removeSuccessors()
      }
    } catch (error) {
      why = messageOf(error)
      if (why !== said)
        this.#logger.error('auto-unseal or key rotation failed, will retry', {
          error: why,
        })
    }
    void this.#rollbackCheck.write()
    if (this.#isStopped) return
    this.#timer = setTimeout(() => void this.#tick(why), TICK_MS)
    this.#timer.unref()
  }

  #stopTicking(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
  }

  async stop(): Promise<void> {
    await this.#undo.disposeAsync()
  }
}

function serverInfoOf({ process }: SecretsOptions): ServerInfo {
  return {
    apiAddress: () => apiUrlOf(process.config, process.url),
    metrics: { json: () => process.metrics?.json() ?? {}, text: () => process.metrics?.text() },
    settings: () => sanitizedSettings(process.config),
    directories: [process.config.dataDir],
  }
}

/** Read for each request: a reload changes them. */
function unauthedOf({ process }: SecretsOptions) {
  return {
    rekey: () => !process.config.server.disableUnauthedRekeyEndpoints,
    generateRoot: () => !process.config.server.disableUnauthedGenerateRootEndpoints,
  }
}

/** Additional mounts with `-dev`. */
function developmentMounts() {
  const description = 'key/value secret storage'
  return [
    newRecord({ path: 'secret/', type: 'kv', description, options: { version: '2' } }),
    newRecord({ path: 'cloud/', type: 'cloud', description: 'short-lived AWS credentials' }),
  ]
}
