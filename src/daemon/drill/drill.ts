/**
 * A drill: a copy of a secondary's database is promoted in this process, serves reads on loopback, and is removed. It proves that the
 * data of the secondary can be decrypted and read, and changes nothing outside its directory.
 *
 * Promises. The secondary's database is opened read-only, and its process is not contacted. The copy contains no local entries (link
 * keys), and this process does not replicate, listen on the cluster port or connect to NATS. Its core is isolated
 * (`CoreOptions.isIsolated`): no audit device writes, no due lease, token or rotation is processed, and engines with external
 * systems are disabled. HTTP serves reads only.
 *
 * The copy is removed at the end, at any exit of the process, and after SIGKILL by the next drill: one directory, one lock. A directory
 * with other files is refused: only files whose names start with `COPY_NAME` are ever removed. A directory that contains the copied database
 * is refused first.
 */
import { mkdirSync, rmSync, lstatSync, readdirSync, realpathSync, rmdirSync, unlinkSync } from 'node:fs'
import { dirname, join, resolve, basename, sep } from 'node:path'
import { Barrier } from '../../storage/barrier/barrier.ts'
import { sealSettings } from '../../storage/seal/static-key.ts'
import { Seal } from '../../storage/seal/seal.ts'
import { decodeShare } from '../../storage/seal/shares.ts'
import type { Drill, DrillOptions } from '../../cli/framework/services.ts'
import type { Config } from '../../config/load.ts'
import { configOf } from '../setup/dev.ts'
import { coreEngines, ownEngines } from '../modules/engines.ts'
import { limitsOf } from '../setup/settings.ts'
import { Listener } from '../../http/listener.ts'
import { Router } from '../../http/router.ts'
import { sleep } from '../../platform/clock.ts'
import { Fault, isErrno } from '../../platform/errors.ts'
import { SILENT_LOGGER } from '../../platform/log.ts'
import { foreignOwner } from '../../platform/program-file.ts'
import { SecretsCore } from '../../secrets/core.ts'
import { READ_VERBS } from '../../secrets/request/core-endpoints.ts'
import { secretsOperations } from '../../secrets/request/handle-request.ts'
import { anonymousIdentity } from '../../secrets/policies/policy.ts'
import { copyDatabase, type CopySpace, copyNeed, lockForCopy } from '../../storage/snapshot/database-copy.ts'
import { SqliteStore } from '../../storage/store/store.ts'

const DIRECTORY = 'outpost-drill'
const INTEGRITY_LOOK_MS = 20
const INTEGRITY_MS = 600_000

/** Rejects with a Fault. When it resolves, this process owns the directory of the copy. */
export async function beginDrill(options: DrillOptions, version: string, signal: AbortSignal): Promise<Drill> {
  signal.throwIfAborted()
  const { config } = configOf(agentOptions(options), undefined)
  const { enabled, secrets, storagePath } = config.server
  if (!enabled || !secrets) throw new Fault('the configuration has no server with secrets: use that of the secondary')
  const foreign = foreignOwner(storagePath)
  // Files of another user beside a database would prevent its server from opening it.
  if (foreign) throw new Fault(`${foreign}: run the drill as the user of the server (sudo -u USER)`)
  const parent = resolve(options.directory ?? dirname(storagePath))
  refuseAroundDatabase(join(parent, DIRECTORY), storagePath)
  const lock = lockForCopy(join(parent, DIRECTORY))
  if (!lock) throw new Fault(`another drill is running in ${parent}`)
  try {
    return new ServerDrill({ ...options, config, version, signal, parent, lock })
  } catch (error) {
    lock.close()
    throw error
  }
}

function agentOptions({ config }: DrillOptions) {
  const nothing = { httpPort: undefined, clusterPort: undefined, dataDir: undefined, nodeId: undefined }
  return { ...nothing, config, dev: false, devRootTokenId: undefined, devNoDemo: true, logLevel: undefined }
}

interface DrillParts extends Omit<DrillOptions, 'config'> {
  readonly config: Config
  readonly version: string
  readonly signal: AbortSignal
  readonly parent: string
  readonly lock: { close(): void }
}

class ServerDrill implements Drill {
  readonly directory: string
  readonly removedLeftover: boolean
  readonly space: CopySpace
  readonly #parts: DrillParts
  readonly #path: string
  readonly #undo = new AsyncDisposableStack()
  readonly #remove: () => void
  readonly #ended = new AbortController()
  readonly #signal: AbortSignal
  #underWay: Promise<unknown> = Promise.resolve()
  #opened: { readonly barrier: Barrier; readonly seal: Seal; readonly core: SecretsCore } | undefined

  constructor(parts: DrillParts) {
    this.#parts = parts
    this.#signal = AbortSignal.any([parts.signal, this.#ended.signal])
    this.directory = join(parts.parent, DIRECTORY)
    this.#path = join(this.directory, COPY_NAME)
    this.removedLeftover = removeLeftover(this.directory)
    this.space = copyNeed(parts.config.server.storagePath, parts.parent)
    mkdirSync(this.directory, { mode: 0o700 })
    this.#remove = () => rmSync(this.directory, { recursive: true, force: true, maxRetries: 3 })
    process.on('exit', this.#remove)
    this.#undo.defer(() => parts.lock.close())
    this.#undo.defer(() => void process.off('exit', this.#remove))
    this.#undo.defer(() => this.#remove())
  }

  /** `close` waits for the step in progress; no step starts after it. */
  #step<T>(work: () => Promise<T>): Promise<T> {
    const step = (async () => {
      this.#signal.throwIfAborted()
      return work()
    })()
    this.#underWay = step.catch(() => undefined)
    return step
  }

  copy(): ReturnType<typeof copyDatabase> {
    return this.#step(() => this.#copy())
  }

  open(): Promise<number> {
    return this.#step(() => this.#openCopy())
  }

  unseal(share: string): Promise<boolean> {
    return this.#step(() => this.#open.seal.unseal(decodeShare(share)))
  }

  serve(): Promise<{ url: string; token: string }> {
    return this.#step(() => this.#serve())
  }

  integrity(): Promise<readonly string[]> {
    return this.#step(() => this.#integrity())
  }

  async #copy() {
    const { neededBytes, leftFreeBytes, freeBytes } = this.space
    if (freeBytes < neededBytes + leftFreeBytes) {
      const needs = `the copy needs ${neededBytes} bytes in ${this.#parts.parent} and must leave ${leftFreeBytes} free`
      throw new Fault(`${needs}, but only ${freeBytes} bytes are free: free space, or use another directory (-dir)`)
    }
    return copyDatabase(this.#parts.config.server.storagePath, this.#path, this.#signal)
  }

  async #openCopy(): Promise<number> {
    const { config, version } = this.#parts
    const { type, settings } = config.server.seal
    const store = await SqliteStore.open(this.#path)
    this.#undo.defer(() => store.close())
    this.#signal.throwIfAborted()
    const barrier = new Barrier(store)
    const seal = new Seal(store, barrier, sealSettings(type, settings))
    const core = new SecretsCore({
      barrier,
      seal,
      engines: coreEngines,
      own: ownEngines,
      version,
      clusterName: config.name,
      logger: SILENT_LOGGER,
      isIsolated: true,
    })
    this.#undo.defer(() => core.seal())
    this.#opened = { barrier, seal, core }
    if (seal.config.type === 'shamir') return seal.config.threshold
    if (!(await seal.autoUnseal())) throw new Fault(`auto-unseal of the copy failed: ${seal.nextStep}`)
    return 0
  }

  get #open() {
    if (!this.#opened) throw new Error('the copy is not open')
    return this.#opened
  }

  async #serve() {
    const { core, barrier } = this.#open
    core.activate()
    const { puts, token } = core.open.tokens.newRoot(core.now())
    await barrier.commit({ puts, deletes: [] })
    const listener = new Listener({
      host: '127.0.0.1',
      port: this.#parts.port,
      headers: [],
      router: new Router([], secretsOperations(core, READ_VERBS)),
      logger: SILENT_LOGGER,
      resolve: () => anonymousIdentity,
      limits: limitsOf(this.#parts.config),
    })
    const { port } = await listener.listen()
    this.#undo.defer(() => listener.close())
    return { url: `http://127.0.0.1:${port}`, token }
  }

  async #integrity(): Promise<readonly string[]> {
    const { barrier } = this.#open
    const deadlineMs = performance.now() + INTEGRITY_MS
    while (!barrier.integrity.isChecked) {
      if (performance.now() > deadlineMs) return [`not all entries were checked within ${INTEGRITY_MS / 1000} s`]
      await sleep(INTEGRITY_LOOK_MS, this.#signal)
      this.#signal.throwIfAborted()
    }
    return barrier.integrity.warnings
  }

  async close(): Promise<void> {
    this.#ended.abort()
    await this.#underWay
    await this.#undo.disposeAsync()
  }
}

export const COPY_NAME = 'drill-copy.db'

/** Throws a Fault if the database, or a link on its path, is `directory` or below it. */
export function refuseAroundDatabase(directory: string, storagePath: string): void {
  const path = resolve(storagePath)
  const places = [path, join(realOf(dirname(path)), basename(path)), realOf(path)]
  const within = new Set([directory, realOf(directory)])
  for (const each of within) {
    if (!places.some((place) => place === each || place.startsWith(`${each}${sep}`))) continue
    throw new Fault(
      `the database ${storagePath} is in ${directory}, the directory of the copy: use another directory (-dir)`,
    )
  }
}

/**
 * Removes the copy of a killed drill; true if there was one. The caller holds the lock. Throws a Fault without a change if the path is
 * not a directory or contains other files.
 */
export function removeLeftover(directory: string): boolean {
  const found = lstatSync(directory, { throwIfNoEntry: false })
  if (!found) return false
  if (!found.isDirectory()) throw new Fault(`${directory} is not a drill directory: ${ELSEWHERE}`)
  const names = readdirSync(directory, { withFileTypes: true })
  const foreign = names.find((each) => !each.isFile() || !each.name.startsWith(COPY_NAME))
  if (foreign)
    throw new Fault(`${join(directory, foreign.name)} is not a file of a drill, nothing was removed: ${ELSEWHERE}`)
  for (const { name } of names) unlinkSync(join(directory, name))
  rmdirSync(directory)
  return true
}

const ELSEWHERE = 'move it away, or use another directory (-dir)'

/** The real path; the given one if the file does not exist. */
function realOf(path: string): string {
  try {
    return realpathSync(path)
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return path
    throw error
  }
}
