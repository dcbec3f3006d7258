/**
 * How a server gets its secrets core: the store, the barrier above it, the core above that, and who a token is to the
 * rest of the process. Loaded only where the server role is on.
 */
import { randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Barrier } from './barrier/barrier.ts'
import { KEY_BYTES } from './barrier/keyring.ts'
import type { Config } from './config/load.ts'
import { cubbyhole } from './engines/cubbyhole/cubbyhole.ts'
import { isErrno } from './kit/errors.ts'
import type { Logger } from './kit/log.ts'
import type { AnyOperation } from './kit/operation.ts'
import { SecretsCore } from './secrets/core.ts'
import { secretsOperations } from './secrets/operations.ts'
import { systemEngine } from './secrets/system.ts'
import { tokenEngine } from './secrets/token-engine.ts'
import { SqliteStore } from './store/store.ts'

export interface SecretsOptions {
  readonly config: Config
  readonly version: string
  readonly logger: Logger
  /** Set with `-dev`: the core is initialised and unsealed at the start, and this is its root token. */
  readonly devRootToken: string | undefined
}

export class SecretsRoom {
  readonly core: SecretsCore
  readonly operations: readonly AnyOperation[]
  readonly #store: SqliteStore

  /** Opens the database. Rejects with a Fault for the operator. */
  static async open(options: SecretsOptions): Promise<SecretsRoom> {
    const { storagePath } = options.config.server
    mkdirSync(dirname(storagePath), { recursive: true, mode: 0o700 })
    const room = new SecretsRoom(options, await SqliteStore.open(storagePath))
    if (options.devRootToken !== undefined) await room.#openForDevelopment(options.devRootToken)
    return room
  }

  private constructor({ config, logger, version }: SecretsOptions, store: SqliteStore) {
    this.#store = store
    this.core = new SecretsCore({
      barrier: new Barrier(store),
      engines: [cubbyhole],
      own: (core) => [systemEngine(core), tokenEngine(core)],
      version,
      clusterName: config.name,
      logger,
    })
    this.operations = secretsOperations(this.core)
  }

  /** The key lies beside the data: what `-dev` promises is to work, not to keep secrets from who can read its files. */
  async #openForDevelopment(rootToken: string): Promise<void> {
    const { barrier } = this.core
    const key = developmentKey(join(dirname(this.#store.path), 'dev.key'))
    if (!barrier.isInitialised) await barrier.initialise(key, { puts: this.core.beginning(rootToken).puts })
    barrier.unseal(key)
    this.core.activate()
  }

  async stop(): Promise<void> {
    this.core.seal()
    await this.#store.close()
  }
}

function developmentKey(file: string): Buffer {
  try {
    return readFileSync(file)
  } catch (error) {
    if (!isErrno(error, 'ENOENT')) throw error
    const key = randomBytes(KEY_BYTES)
    writeFileSync(file, key, { mode: 0o600, flush: true })
    return key
  }
}
