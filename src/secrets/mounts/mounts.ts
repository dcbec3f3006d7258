/**
 * The table of mounts. Each mount is one entry. The table is read once, when the core is unsealed, and changes in memory when a change
 * of an entry is durable (`mount-changes.ts`).
 */
import type { Storage, ViewScope } from '../../storage/barrier/storage.ts'
import type { Engine, IdentityToken, IdentityTokenRequest, MountFacts, Path } from '../../engines/framework/engine.ts'
import { KeyedHash } from '../../platform/keyed-hash.ts'
import { PathTable } from '../../engines/framework/path-table.ts'
import { Fault } from '../../platform/errors.ts'
import { dataPrefix, isOwnType, type MountRecord, readRecords } from './mount-record.ts'
import { ttlLimitsOf } from './mount-ttl.ts'

export interface Mount {
  readonly record: MountRecord
  readonly engine: Engine
  readonly paths: PathTable
  /** The entries that the engine can access. */
  readonly storage: Storage
  readonly viewScope: ViewScope
  /** The record as engines see it. */
  readonly facts: MountFacts
  /** True for engines of the core itself, which access all of the barrier. */
  readonly isOwn: boolean
  readonly activeRequests: ActiveRequests
}

/** A request path, resolved to its mount. */
export interface ResolvedPath {
  readonly mount: Mount
  /** The path below the mount. */
  readonly rest: string
}

export interface MountTableOptions {
  /** All of the barrier. */
  readonly storage: Storage
  readonly engines: readonly Engine[]
  /** Issues an identity token for a mount. */
  readonly identityToken: (record: MountRecord, wish: IdentityTokenRequest) => Promise<IdentityToken>
}

export class MountTable {
  readonly #options: MountTableOptions
  readonly #byPath = new Map<string, Mount>()
  readonly #byUuid = new Map<string, Mount>()
  /** By the engine's list of paths, which is the same object for all mounts with the same paths. */
  readonly #pathTables = new Map<readonly Path[], PathTable>()
  #depthMax = 1

  constructor(options: MountTableOptions) {
    this.#options = options
  }

  /**
   * Reads the table, and returns the records of mounts that are being removed. Throws a Fault for a damaged record, and for an unknown
   * type.
   */
  load(): MountRecord[] {
    const { storage } = this.#options
    const leaving: MountRecord[] = []
    for (const record of readRecords(storage)) {
      if (record.isLeaving) leaving.push(record)
      else this.attach(record)
    }
    return leaving
  }

  /** Adds a mount to the table, or replaces its record. The entry must be durable. */
  attach(record: MountRecord): Mount {
    const engine = this.engine(record.type)
    if (!engine) throw new Fault(`no engine of the type ${record.type} for the mount ${record.path}`)
    const before = this.#byUuid.get(record.uuid)
    const mount = mountOf(record, engine, {
      paths: this.#table(engine.pathsFor?.(record.options) ?? engine.paths),
      ...(before ? { storage: before.storage, viewScope: before.viewScope } : this.#createView(record)),
      activeRequests: before?.activeRequests ?? new ActiveRequests(),
      identityToken: this.#identityToken(record),
    })
    if (before) this.#byPath.delete(before.record.path)
    this.#byPath.set(record.path, mount)
    this.#byUuid.set(record.uuid, mount)
    this.#updateDepth()
    return mount
  }

  /** A mount outside the table, whose engine can revoke what it issued; undefined for an unknown type. */
  createDetached(record: MountRecord): Mount | undefined {
    const engine = this.engine(record.type)
    if (!engine) return undefined
    const paths = this.#table(engine.pathsFor?.(record.options) ?? engine.paths)
    const identityToken = this.#identityToken(record)
    return mountOf(record, engine, {
      paths,
      ...this.#createView(record),
      activeRequests: new ActiveRequests(),
      identityToken,
    })
  }

  /** Removes a mount from the table. */
  detach(uuid: string): void {
    const mount = this.#byUuid.get(uuid)
    if (!mount) return
    this.#byPath.delete(mount.record.path)
    this.#byUuid.delete(uuid)
    this.#updateDepth()
  }

  /** Uses the current record at each call: the mount may have moved. */
  #identityToken({ uuid, ...rest }: MountRecord): MountFacts['identityToken'] {
    return (wish) => this.#options.identityToken(this.#byUuid.get(uuid)?.record ?? { uuid, ...rest }, wish)
  }

  /** Engines of the core itself access all of the barrier, other engines the prefix of their mount. */
  #createView({ type, uuid }: MountRecord): Pick<Mount, 'storage' | 'viewScope'> {
    return this.#options.storage.createView(isOwnType(type) ? '' : dataPrefix(uuid))
  }

  #updateDepth(): void {
    this.#depthMax = [...this.#byPath.keys()].reduce((most, path) => Math.max(most, path.split('/').length - 1), 1)
  }

  /** Finds an engine by its type, a further type or an alias. */
  engine(type: string): Engine | undefined {
    const { engines } = this.#options
    return engines.find((each) => {
      return each.type === type || each.furtherTypes?.includes(type) || Object.hasOwn(each.aliases ?? {}, type)
    })
  }

  get engines(): readonly Engine[] {
    return this.#options.engines
  }

  #table(paths: readonly Path[]): PathTable {
    const table = this.#pathTables.get(paths) ?? new PathTable(paths)
    this.#pathTables.set(paths, table)
    return table
  }

  /** The mount with the longest path that is a prefix of `path`. */
  find(path: string): ResolvedPath | undefined {
    let found: ResolvedPath | undefined
    let end = -1
    for (let depth = 0; depth < this.#depthMax; depth++) {
      end = path.indexOf('/', end + 1)
      // The root of a mount may be requested without the slash.
      const prefix = end < 0 ? `${path}/` : path.slice(0, end + 1)
      const mount = this.#byPath.get(prefix)
      if (mount) found = { mount, rest: path.slice(prefix.length) }
      if (end < 0) break
    }
    return found
  }

  byUuid(uuid: string): Mount | undefined {
    return this.#byUuid.get(uuid)
  }

  byAccessor(accessor: string): Mount | undefined {
    return this.all().find(({ record }) => record.accessor === accessor)
  }

  get(path: string): Mount | undefined {
    return this.#byPath.get(path)
  }

  /** Sorted by path. */
  all(): Mount[] {
    return [...this.#byPath.values()].sort((a, b) => (a.record.path < b.record.path ? -1 : 1))
  }
}

/** Creates a mount. `secret` is passed to the engine only. */
export function mountOf(
  record: MountRecord,
  engine: Engine,
  {
    identityToken,
    ...rest
  }: Pick<Mount, 'activeRequests' | 'paths' | 'storage' | 'viewScope'> & Pick<MountFacts, 'identityToken'>,
): Mount {
  const { accessor, options, path, secret, type, uuid } = record
  const { defaultTtlSeconds, maxTtlSeconds } = ttlLimitsOf(record.config)
  const facts = Object.freeze({
    path,
    type,
    uuid,
    accessor,
    options,
    defaultLeaseSeconds: defaultTtlSeconds,
    maxLeaseSeconds: maxTtlSeconds,
    secret: new KeyedHash(Buffer.from(secret, 'base64')),
    identityToken,
  })
  return { record, engine, facts, isOwn: isOwnType(type), ...rest }
}

/** Counts the requests under way at a mount. */
export class ActiveRequests {
  #count = 0
  readonly #waiters = new Set<() => void>()

  /** Counts a request until the returned function is called. */
  enter(): () => void {
    this.#count++
    return () => {
      this.#count--
      if (this.#count === 0) for (const resume of this.#waiters) resume()
    }
  }

  /** Resolves to true when no request is under way, to false after the timeout. */
  async idle(timeoutMs: number): Promise<boolean> {
    if (this.#count === 0) return true
    return new Promise((resolve) => {
      const finish = (isIdle: boolean) => {
        clearTimeout(timer)
        this.#waiters.delete(resume)
        resolve(isIdle)
      }
      const resume = () => finish(true)
      const timer = setTimeout(() => finish(false), timeoutMs)
      this.#waiters.add(resume)
    })
  }
}
