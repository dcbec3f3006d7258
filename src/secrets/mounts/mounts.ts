/**
 * Which engine is where. Each mount is an entry of its own; the table is read once, when the core is unsealed, and changes
 * in memory only after an entry is durable (`mount-changes.ts`).
 */
import type { Storage, Tenure } from '../../storage/barrier/storage.ts'
import type { Engine, IdentityToken, IdentityTokenWish, MountFacts, Path } from '../../engines/framework/engine.ts'
import { KeyedHash } from '../../platform/keyed-hash.ts'
import { PathTable } from '../../engines/framework/path-table.ts'
import { Fault } from '../../platform/errors.ts'
import { dataPrefix, isOwnType, type MountRecord, readRecords } from './mount-record.ts'
import { ttlLimitsOf } from './mount-ttl.ts'
import { Traffic } from './traffic.ts'

/** A mount that serves. */
export interface Mount {
  readonly record: MountRecord
  readonly engine: Engine
  readonly paths: PathTable
  /** What its engine reaches. */
  readonly storage: Storage
  /** Of that storage. */
  readonly tenure: Tenure
  /** The record as engines see it. */
  readonly facts: MountFacts
  /** True for the core's own engines, which work on all of the barrier. */
  readonly isOwn: boolean
  readonly traffic: Traffic
}

export interface Place {
  readonly mount: Mount
  /** The path below the mount. */
  readonly rest: string
}

export interface MountTableOptions {
  /** All of the barrier. */
  readonly storage: Storage
  readonly engines: readonly Engine[]
  /** Signs for a mount. */
  readonly identityToken: (record: MountRecord, wish: IdentityTokenWish) => Promise<IdentityToken>
}

export class MountTable {
  readonly #options: MountTableOptions
  readonly #byPath = new Map<string, Mount>()
  readonly #byUuid = new Map<string, Mount>()
  /** By the list that an engine gives: it gives the same one for the same kind of mount. */
  readonly #tables = new Map<readonly Path[], PathTable>()
  #depthMax = 1

  constructor(options: MountTableOptions) {
    this.#options = options
  }

  /**
   * Reads the table, and returns the records of mounts that were on their way out. Throws a Fault for a record that is
   * damaged, and for a type that this program does not have.
   */
  load(): MountRecord[] {
    const { storage } = this.#options
    const leaving: MountRecord[] = []
    for (const record of readRecords(storage)) {
      if (record.isLeaving) leaving.push(record)
      else this.place(record)
    }
    return leaving
  }

  /** Lets a record serve from now on, in the place of what it was before. Its entry must be durable already. */
  place(record: MountRecord): Mount {
    const engine = this.engine(record.type)
    if (!engine) throw new Fault(`no engine of the type ${record.type} for the mount ${record.path}`)
    const before = this.#byUuid.get(record.uuid)
    const mount = mountOf(record, engine, {
      paths: this.#table(engine.pathsFor?.(record.options) ?? engine.paths),
      ...(before ? { storage: before.storage, tenure: before.tenure } : this.#lent(record)),
      traffic: before?.traffic ?? new Traffic(),
      identityToken: this.#identityToken(record),
    })
    if (before) this.#byPath.delete(before.record.path)
    this.#byPath.set(record.path, mount)
    this.#byUuid.set(record.uuid, mount)
    this.#measure()
    return mount
  }

  /** A mount that serves no requests, for its engine to take back what it gave out; undefined where there is no such engine. */
  unplaced(record: MountRecord): Mount | undefined {
    const engine = this.engine(record.type)
    if (!engine) return undefined
    const paths = this.#table(engine.pathsFor?.(record.options) ?? engine.paths)
    const identityToken = this.#identityToken(record)
    return mountOf(record, engine, { paths, ...this.#lent(record), traffic: new Traffic(), identityToken })
  }

  /** Lets a mount serve no longer. */
  displace(uuid: string): void {
    const mount = this.#byUuid.get(uuid)
    if (!mount) return
    this.#byPath.delete(mount.record.path)
    this.#byUuid.delete(uuid)
    this.#measure()
  }

  /** By the record as it is then: the mount may have been moved. */
  #identityToken({ uuid, ...rest }: MountRecord): MountFacts['identityToken'] {
    return (wish) => this.#options.identityToken(this.#byUuid.get(uuid)?.record ?? { uuid, ...rest }, wish)
  }

  /** The core's own engines work on all of the barrier, any other below its mount's own prefix. */
  #lent({ type, uuid }: MountRecord): Pick<Mount, 'storage' | 'tenure'> {
    return this.#options.storage.lend(isOwnType(type) ? '' : dataPrefix(uuid))
  }

  #measure(): void {
    this.#depthMax = [...this.#byPath.keys()].reduce((most, path) => Math.max(most, path.split('/').length - 1), 1)
  }

  /** The engine of a type, of a further type or of an alias. */
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
    const table = this.#tables.get(paths) ?? new PathTable(paths)
    this.#tables.set(paths, table)
    return table
  }

  /** The mount with the longest path that `path` begins with. */
  find(path: string): Place | undefined {
    let found: Place | undefined
    let end = -1
    for (let depth = 0; depth < this.#depthMax; depth++) {
      end = path.indexOf('/', end + 1)
      // A mount's own root may be asked for without its slash.
      const prefix = end < 0 ? `${path}/` : path.slice(0, end + 1)
      const mount = this.#byPath.get(prefix)
      if (mount) found = { mount, rest: path.slice(prefix.length) }
      if (end < 0) break
    }
    return found
  }

  /** The mount with this UUID, while it serves. */
  byUuid(uuid: string): Mount | undefined {
    return this.#byUuid.get(uuid)
  }

  byAccessor(accessor: string): Mount | undefined {
    return this.all().find(({ record }) => record.accessor === accessor)
  }

  get(path: string): Mount | undefined {
    return this.#byPath.get(path)
  }

  /** In the order of their paths. */
  all(): Mount[] {
    return [...this.#byPath.values()].sort((a, b) => (a.record.path < b.record.path ? -1 : 1))
  }
}

/** A mount of a record; `secret` is for the engine alone. */
export function mountOf(
  record: MountRecord,
  engine: Engine,
  {
    identityToken,
    ...rest
  }: Pick<Mount, 'paths' | 'traffic' | 'storage' | 'tenure'> & Pick<MountFacts, 'identityToken'>,
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
