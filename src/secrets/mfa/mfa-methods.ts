/**
 * Stores MFA methods, one entry each. All are in memory, indexed by ID and by name.
 *
 * Changes are serialized: each is based on the durable state, and the memory is updated after the commit. A removed method leaves an
 * entry until its secrets are removed, so an interrupted removal continues at the next start.
 *
 * Old versions stored all methods in one entry. The first change replaces it by one entry per method in one commit.
 */
import { randomUUID } from 'node:crypto'
import * as v from 'valibot'
import type { Batch, Storage } from '../../storage/barrier/storage.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { Fault } from '../../platform/errors.ts'
import { Mutex } from '../../platform/mutex.ts'
import { StoredSetting } from '../settings/stored-setting.ts'
import { type TotpMethod, methodSchema, type MethodSettings } from './mfa-method.ts'

/** Reading this number at an unseal takes some tenths of a second and some MiB of memory. */
const METHODS_MAX = 10_000
const METHODS = 'method/'
const REMOVED = 'removed-method/'
const OLD_ENTRY = 'methods'

const entrySchema = v.pipe(v.string(), v.parseJson(), methodSchema)
const oldSchema = v.object({ methods: v.array(methodSchema), leaving: v.array(v.string()) })

export class MfaMethods {
  readonly #storage: Storage
  readonly #byId = new Map<string, TotpMethod>()
  readonly #idByName = new Map<string, string>()
  /** IDs of removed methods whose secrets are still being removed. */
  readonly #removed: Set<string>
  #lastPosition: number
  /** The entry of an old version was not replaced yet. */
  #isOld: boolean
  readonly #changes = new Mutex()

  /** Throws a Fault for a damaged entry. */
  constructor(storage: Storage) {
    this.#storage = storage
    const old = new StoredSetting(storage, OLD_ENTRY, oldSchema, { methods: [], leaving: [] }).value
    this.#isOld = old.methods.length + old.leaving.length > 0
    const stored = storage.list(METHODS).map((id) => this.#read(id))
    const ordered = old.methods.map((each, position) => ({ ...each, position }))
    for (const each of [...ordered, ...stored].sort((a, b) => a.position - b.position)) this.#add(each)
    this.#lastPosition = this.all.at(-1)?.position ?? 0
    this.#removed = new Set([...old.leaving, ...storage.list(REMOVED)])
  }

  #read(id: string): TotpMethod {
    const text = this.#storage.get(METHODS + id)?.toString('utf8') ?? ''
    const method = v.safeParse(entrySchema, text)
    if (!method.success) throw new Fault(`the entry of MFA method ${id} is damaged`)
    return method.output
  }

  #add(method: TotpMethod): void {
    const before = this.#byId.get(method.id)
    if (before) this.#idByName.delete(before.name)
    this.#byId.set(method.id, method)
    if (method.name !== '') this.#idByName.set(method.name, method.id)
  }

  /** In order of creation. */
  get all(): readonly TotpMethod[] {
    return [...this.#byId.values()]
  }

  get ids(): Iterable<string> {
    return this.#byId.keys()
  }

  get removed(): readonly string[] {
    return [...this.#removed]
  }

  byId(id: string): TotpMethod | undefined {
    return this.#byId.get(id)
  }

  byName(name: string): TotpMethod | undefined {
    const id = this.#idByName.get(name)
    return id === undefined ? undefined : this.#byId.get(id)
  }

  /**
   * Creates a method, or replaces the parameters of the one with that ID or name. An undefined `name` keeps the current one. Resolves
   * with the ID. Rejects with a Rejection (400) for the name of another method, and for an unknown ID.
   */
  write(reference: { readonly id?: string; readonly name?: string }, settings: MethodSettings): Promise<string> {
    return this.#changes.runExclusive(async () => {
      const { id, name } = reference
      const before = id === undefined ? this.byName(name ?? '') : this.byId(id)
      if (id !== undefined && !before)
        throw new Rejection(400, `configuration for method ID ${JSON.stringify(id)} does not exist`)
      if (!before && this.#byId.size >= METHODS_MAX) throw new Rejection(400, `at most ${METHODS_MAX} MFA methods`)
      const position = before?.position ?? ++this.#lastPosition
      const method = { id: before?.id ?? randomUUID(), name: name ?? before?.name ?? '', position, ...settings }
      const holder = this.byName(method.name)
      if (holder && holder.id !== method.id) {
        throw new Rejection(400, `the name ${JSON.stringify(method.name)} is already used by another MFA method`)
      }
      await this.#commit({ puts: [putOf(method)], deletes: [] })
      this.#add(method)
      return method.id
    })
  }

  /** Removes a method and marks its secrets for removal. */
  remove(id: string): Promise<void> {
    return this.#changes.runExclusive(async () => {
      const method = this.#byId.get(id)
      if (!method) return
      await this.#commit({ puts: [{ path: REMOVED + id, value: Buffer.alloc(0) }], deletes: [METHODS + id] })
      this.#byId.delete(id)
      this.#idByName.delete(method.name)
      this.#removed.add(id)
    })
  }

  /** Deletes the mark of a removed method after its secrets were removed. */
  forget(id: string): Promise<void> {
    return this.#changes.runExclusive(async () => {
      await this.#commit({ puts: [], deletes: [REMOVED + id] })
      this.#removed.delete(id)
    })
  }

  async #commit({ deletes, puts }: Batch): Promise<void> {
    if (!this.#isOld) return void (await this.#storage.commit({ deletes, puts }))
    const migrated = [
      ...this.all.map(putOf),
      ...this.removed.map((id) => ({ path: REMOVED + id, value: Buffer.alloc(0) })),
    ]
    const changed = new Set([...deletes, ...puts.map(({ path }) => path)])
    const others = migrated.filter(({ path }) => !changed.has(path))
    await this.#storage.commit({ puts: [...others, ...puts], deletes: [...deletes, OLD_ENTRY] })
    this.#isOld = false
  }
}

function putOf(method: TotpMethod): Batch['puts'][number] {
  return { path: METHODS + method.id, value: Buffer.from(JSON.stringify(method)) }
}
