/**
 * Which engine is where. Each mount is an entry of its own, so that a change of one touches no other; the table is read
 * once, when the core is unsealed, and changes in memory only after its entry is durable.
 */
import { randomBytes, randomUUID } from 'node:crypto'
import * as v from 'valibot'
import type { Engine, MountFacts, Storage } from '../engines/engine.ts'
import { KeyedHash } from '../engines/keyed-hash.ts'
import { PathTable } from '../engines/path-table.ts'
import { Fault } from '../kit/errors.ts'

export const MOUNTS_PREFIX = 'core/mounts/'

const configSchema = v.object({
  defaultLeaseSeconds: v.number(),
  maxLeaseSeconds: v.number(),
  forceNoCache: v.boolean(),
  listingVisibility: v.picklist(['', 'unauth', 'hidden']),
  tokenType: v.optional(v.string()),
  auditNonHmacRequestKeys: v.optional(v.array(v.string())),
  auditNonHmacResponseKeys: v.optional(v.array(v.string())),
  passthroughRequestHeaders: v.optional(v.array(v.string())),
  allowedResponseHeaders: v.optional(v.array(v.string())),
})

const mountSchema = v.object({
  uuid: v.string(),
  path: v.string(),
  type: v.string(),
  accessor: v.string(),
  description: v.string(),
  options: v.record(v.string(), v.string()),
  config: configSchema,
  local: v.boolean(),
  sealWrap: v.boolean(),
  /** 32 random bytes in base64, with which an engine hides what it calls its entries. */
  secret: v.pipe(v.string(), v.base64()),
  /** Set while its data is being removed: it serves nobody any more, and a start goes on with it. */
  isLeaving: v.boolean(),
})

export type MountConfig = v.InferOutput<typeof configSchema>

/** What is kept of a mount. */
export type MountRecord = v.InferOutput<typeof mountSchema>

/** A mount that serves. */
export interface Mount {
  readonly record: MountRecord
  readonly engine: Engine
  readonly paths: PathTable
  readonly view: Storage
  /** The record as engines see it. */
  readonly facts: MountFacts
  /** True for the core's own engines, which work on all of the barrier. */
  readonly isOwn: boolean
}

/** Types of the core's own engines. */
const OWN_TYPES = new Set(['system', 'token'])

export function isOwnType(type: string): boolean {
  return OWN_TYPES.has(type)
}

export interface Place {
  readonly mount: Mount
  /** The path below the mount. */
  readonly rest: string
}

export interface MountTableOptions {
  /** All of the barrier. */
  readonly storage: Storage
  /** What an engine at a place may reach. */
  readonly viewOf: (record: MountRecord) => Storage
  readonly engines: readonly Engine[]
}

export class MountTable {
  readonly #options: MountTableOptions
  readonly #byPath = new Map<string, Mount>()
  readonly #tables = new Map<string, PathTable>()
  #depthMax = 1

  constructor(options: MountTableOptions) {
    this.#options = options
  }

  /** Reads the table. Throws a Fault for a record that is damaged, and for a type that this program does not have. */
  load(): void {
    const { storage } = this.#options
    for (const name of storage.list(MOUNTS_PREFIX)) {
      const kept = storage.get(MOUNTS_PREFIX + name)
      if (kept) this.place(parseRecord(kept))
    }
  }

  /** Lets a record serve from now on. Its entry must be durable already. */
  place(record: MountRecord): Mount {
    const engine = this.engine(record.type)
    if (!engine) throw new Fault(`no engine of the type ${record.type} for the mount ${record.path}`)
    const { accessor, options, path, type, uuid } = record
    const facts = Object.freeze({
      path,
      type,
      uuid,
      accessor,
      options,
      secret: new KeyedHash(Buffer.from(record.secret, 'base64')),
    })
    const mount = {
      record,
      engine,
      paths: this.#table(engine),
      view: this.#options.viewOf(record),
      facts,
      isOwn: isOwnType(type),
    }
    this.#byPath.set(record.path, mount)
    this.#measure()
    return mount
  }

  displace(path: string): void {
    this.#byPath.delete(path)
    this.#measure()
  }

  #measure(): void {
    this.#depthMax = [...this.#byPath.keys()].reduce((most, path) => Math.max(most, path.split('/').length - 1), 1)
  }

  engine(type: string): Engine | undefined {
    return this.#options.engines.find((each) => each.type === type)
  }

  #table(engine: Engine): PathTable {
    const table = this.#tables.get(engine.type) ?? new PathTable(engine.paths)
    this.#tables.set(engine.type, table)
    return table
  }

  /** The mount with the longest path that `path` begins with. Mounts that are leaving are not there any more. */
  find(path: string): Place | undefined {
    let found: Place | undefined
    let end = -1
    for (let depth = 0; depth < this.#depthMax; depth++) {
      end = path.indexOf('/', end + 1)
      // A mount's own root may be asked for without its slash.
      const prefix = end < 0 ? `${path}/` : path.slice(0, end + 1)
      const mount = this.#byPath.get(prefix)
      if (mount && !mount.record.isLeaving) found = { mount, rest: path.slice(prefix.length) }
      if (end < 0) break
    }
    return found
  }

  get(path: string): Mount | undefined {
    return this.#byPath.get(path)
  }

  /** In the order of their paths. */
  all(): Mount[] {
    return [...this.#byPath.values()].sort((a, b) => (a.record.path < b.record.path ? -1 : 1))
  }
}

export function parseRecord(bytes: Buffer): MountRecord {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), mountSchema), bytes.toString('utf8'))
  if (!parsed.success) throw new Fault('the record of a mount is damaged')
  return parsed.output
}

export function encodeRecord(record: MountRecord): Buffer {
  return Buffer.from(JSON.stringify(record))
}

export const DEFAULT_CONFIG: MountConfig = Object.freeze({
  defaultLeaseSeconds: 0,
  maxLeaseSeconds: 0,
  forceNoCache: false,
  listingVisibility: '',
})

/** A record with an identity of its own. */
export function newRecord(given: Pick<MountRecord, 'path' | 'type'> & Partial<MountRecord>): MountRecord {
  return {
    description: '',
    options: {},
    config: DEFAULT_CONFIG,
    local: false,
    sealWrap: false,
    isLeaving: false,
    ...given,
    uuid: randomUUID(),
    secret: randomBytes(32).toString('base64'),
    accessor: `${given.path.startsWith('auth/') ? 'auth_' : ''}${given.type}_${randomBytes(4).toString('hex')}`,
  }
}

/** What every core has from its beginning. */
export function defaultRecords(): MountRecord[] {
  return [
    newRecord({
      path: 'sys/',
      type: 'system',
      description: 'system endpoints used for control, policy and debugging',
      sealWrap: true,
    }),
    newRecord({ path: 'auth/token/', type: 'token', description: 'token based credentials' }),
    newRecord({ path: 'cubbyhole/', type: 'cubbyhole', description: 'per-token private secret storage', local: true }),
  ]
}
