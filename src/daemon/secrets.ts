/**
 * How a server gets its secrets core: the store, the barrier above it, the core above that, and who a token is to the
 * rest of the process. Loaded only where the server role is on.
 */
import { mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Barrier } from '../storage/barrier/barrier.ts'
import { EntrySetMismatch, RollbackError } from '../storage/barrier/entry-set.ts'
import { KEY_BYTES } from '../storage/barrier/keyring.ts'
import { sealSettings } from '../storage/seal/static-key.ts'
import { Seal } from '../storage/seal/seal.ts'
import type { Config } from '../config/load.ts'
import { coreEngines, ownEngines } from './engines.ts'
import { developmentKey } from './files.ts'
import { ReplicationPart } from './dr.ts'
import { SecretsFigures } from './secrets-metrics.ts'
import { apiUrlOf, sanitizedSettings } from './settings.ts'
import { Fault, messageOf, Refusal } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import type { AnyOperation } from '../platform/operation.ts'
import { foreignOwner } from '../platform/own-file.ts'
import { SecretsCore } from '../secrets/core.ts'
import { newRecord } from '../secrets/mounts/mount-record.ts'
import { agentLoginOperation, secretsOperations } from '../secrets/request/operations.ts'
import { snapshotOperations } from '../secrets/snapshot-operations.ts'
import { pathParts } from '../secrets/request/path-parts.ts'
import { isRotationDue } from '../secrets/system/seal/system-seal-rotate.ts'
import type { Surroundings } from '../secrets/system/host-info.ts'
import { restoreSnapshot, saveSnapshot } from '../storage/snapshot/snapshot.ts'
import { SeenPosition } from '../storage/store/seen-position.ts'
import { type FileFault, SqliteStore } from '../storage/store/store.ts'

/** Between two looks at whether there is something to do. */
const TICK_MS = 5000

export interface SecretsOptions {
  readonly config: Config
  readonly version: string
  readonly logger: Logger
  /** Set with `-dev`: the core is initialised and unsealed at the start, and this is its root token. */
  readonly devRootToken: string | undefined
  /** What the process can be asked. */
  readonly process: {
    readonly url: string
    readonly config: Config
    readonly figures: { json(): object; text(): Promise<string> | undefined } | undefined
  }
}

export class SecretsRoom {
  readonly core: SecretsCore
  /** For every path that nobody else has. */
  readonly operations: readonly AnyOperation[]
  /** The same for other processes, and what only they may ask. */
  readonly forCluster: readonly AnyOperation[]
  readonly snapshots: readonly AnyOperation[]
  readonly figures: SecretsFigures
  readonly replication: ReplicationPart
  /** What of a path may be logged as it is. */
  readonly pathParts = (path: string) => pathParts(this.core, path)
  readonly #store: SqliteStore
  readonly #seal: Seal
  readonly #seen: SeenPosition
  readonly #logger: Logger
  #timer: NodeJS.Timeout | undefined
  #isStopped = false
  /** Ends what has been started, the newest first. */
  #undo = new AsyncDisposableStack()

  /** Opens the database. Rejects with a Fault for the operator. */
  static async open(options: SecretsOptions): Promise<SecretsRoom> {
    const { auditDirectories, storagePath } = options.config.server
    const ownAudit = join(options.process.config.dataDir, 'audit')
    for (const each of [dirname(storagePath), ...(auditDirectories.includes(ownAudit) ? [ownAudit] : [])]) {
      mkdirSync(each, { recursive: true, mode: 0o700 })
    }
    const foreign = foreignOwner(storagePath)
    if (foreign) options.logger.warn(`only a capability lets this process use its storage: ${foreign}`)
    // What has been opened here is closed again where the rest does not come to be: its thread would keep the process.
    await using begun = new AsyncDisposableStack()
    const store = await SqliteStore.open(storagePath)
    begun.defer(() => store.close())
    const room = new SecretsRoom(options, store)
    begun.defer(() => room.replication.close())
    await room.replication.open(room.core)
    if (options.devRootToken !== undefined) await room.#openForDevelopment(options.devRootToken)
    begun.defer(() => room.#seen.write())
    begun.defer(() => room.core.seal())
    begun.defer(() => room.core.saveAuditHeads())
    begun.defer(() => room.#rest())
    await room.#tick()
    room.#undo = begun.move()
    return room
  }

  private constructor(options: SecretsOptions, store: SqliteStore) {
    const { config, devRootToken, logger, version } = options
    const { type, settings } = config.server.seal
    const barrier = new Barrier(store)
    barrier.onFound = (error) => {
      const which = error instanceof RollbackError ? { entry: error.path, kind: error.kind } : {}
      logger.error('the database was changed by another program', { ...which, error: error.message })
      this.replication.repair()
    }
    store.onFault = (fault) => {
      if (fault) logger.error('the database is not as this server left it', { error: fault.text })
      else logger.info('the database is in its place again, commits go on')
    }
    const directory = dirname(config.server.storagePath)
    store.onSpace = (isFull) => {
      if (isFull) logger.error('disk full, writes are refused', { directory })
      else logger.info('disk writable again', { directory })
    }
    this.#store = store
    this.#logger = logger
    this.#seen = new SeenPosition(store)
    const { warning } = this.#seen
    if (warning !== undefined) logger.warn(warning)
    const surroundings = surroundingsOf(options)
    const apiAddress = () => surroundings.apiAddress?.() ?? ''
    this.replication = new ReplicationPart({
      config,
      version,
      logger: logger.named('replication'),
      store,
      barrier,
      apiAddress,
    })
    this.#seal = new Seal(
      store,
      barrier,
      devRootToken === undefined ? sealSettings(type, settings) : { type: 'shamir' },
      {
        isSecondary: () => this.replication.mode === 'secondary',
        refusal: () => this.#seen.refusal,
        ...(warning !== undefined && { warning }),
      },
    )
    this.core = new SecretsCore({
      barrier,
      seal: this.#seal,
      engines: coreEngines,
      own: ownEngines,
      version,
      clusterName: config.name,
      logger,
      surroundings,
      replication: this.replication,
      auditDirectories: config.server.auditDirectories,
      // Asked for each request: a reload changes them.
      unauthed: {
        rekey: () => !options.process.config.server.disableUnauthedRekeyEndpoints,
        generateRoot: () => !options.process.config.server.disableUnauthedGenerateRootEndpoints,
      },
    })
    this.figures = new SecretsFigures({ core: this.core, store, logger })
    this.operations = secretsOperations(this.core)
    this.forCluster = [...this.operations, agentLoginOperation(this.core)]
    this.snapshots = snapshotOperations(this.core, {
      save: (out, signal) => saveSnapshot(store, out, { signal }),
      restore: (input, wanted) => restoreSnapshot(store, input, wanted),
      onSaved: () => this.figures.snapshotSaved(),
    })
  }

  /** What is wrong with the files of the database; commits are refused meanwhile. */
  get fileFault(): FileFault | undefined {
    return this.#store.fault
  }

  /** The key lies beside the data: what `-dev` promises is to work, not to keep secrets from who can read its files. */
  async #openForDevelopment(rootToken: string): Promise<void> {
    const key = developmentKey(join(dirname(this.#store.path), 'dev.key'), KEY_BYTES)
    const one = { shares: 1, threshold: 1, pgpKeys: [] }
    const request = { unseal: one, recovery: { ...one, shares: 0, threshold: 0 }, rootTokenPgpKey: '' }
    if (!this.#seal.status.initialised) {
      const { refusal } = this.#seen
      if (refusal !== undefined) throw new Fault(refusal)
      await this.#seal.initialise(request, this.core.beginning(rootToken, developmentMounts()), Buffer.from(key))
    }
    const isOpen = await this.#seal.unseal(key).catch((error: unknown) => {
      if (!(error instanceof Refusal) || error instanceof EntrySetMismatch) throw error
      // Its entries are those of its primary, and so are the key shares.
      if (this.core.isSecondary) return false
      const instead = 'start without -dev, or with another -data-dir'
      throw new Fault(`the secrets in ${this.#store.path} were not made with -dev: ${instead}`, { cause: error })
    })
    if (isOpen) await this.core.activateOrSeal()
  }

  /**
   * What the core does by itself: it opens with the machine's own key, where there is one, and changes the key of its
   * entries. A key that cannot be read, perhaps not yet, does not keep the process from starting: everything but secrets
   * works meanwhile, and it is tried again.
   */
  async #tick(said = ''): Promise<void> {
    let why = ''
    try {
      if (await this.#seal.autoUnseal()) {
        await this.core.activateOrSeal()
        for (const warning of this.#seal.status.warnings) this.#logger.warn(warning)
      }
      if (this.core.isActive && isRotationDue(this.core)) await this.core.barrier.rotate()
    } catch (error) {
      why = messageOf(error)
      if (why !== said)
        this.#logger.error('the secrets core does not open, or change its key, by itself; it is tried again', {
          error: why,
        })
    }
    void this.#seen.write()
    if (this.#isStopped) return
    this.#timer = setTimeout(() => void this.#tick(why), TICK_MS)
    this.#timer.unref()
  }

  #rest(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
  }

  async stop(): Promise<void> {
    await this.#undo.disposeAsync()
  }
}

function surroundingsOf({ process }: SecretsOptions): Surroundings {
  return {
    apiAddress: () => apiUrlOf(process.config, process.url),
    metrics: { json: () => process.figures?.json() ?? {}, text: () => process.figures?.text() },
    settings: () => sanitizedSettings(process.config),
    directories: [process.config.dataDir],
  }
}

/** What a developer finds there beside what every core has. */
function developmentMounts() {
  const description = 'key/value secret storage'
  return [
    newRecord({ path: 'secret/', type: 'kv', description, options: { version: '2' } }),
    newRecord({ path: 'cloud/', type: 'cloud', description: 'short-lived credentials of AWS' }),
  ]
}
