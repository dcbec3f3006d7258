/**
 * The MFA methods: one entry for each, all of them in memory, found by ID and by name in constant time.
 *
 * Changes are serialized: each is decided upon what is durable, and the memory follows the entries once these are durable. A method
 * that was removed leaves an entry behind until its secrets are removed, so a removal that was interrupted goes on at the next start.
 *
 * Older versions kept all methods in one entry. It is read, and the first change turns it into entries of their own, in one commit.
 */
import { randomUUID } from 'node:crypto'
import * as v from 'valibot'
import type { Batch, Storage } from '../../storage/barrier/storage.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { Fault } from '../../platform/errors.ts'
import { StoredSetting } from '../settings/stored-setting.ts'
import { type Method, methodSchema, type MethodSettings } from './mfa-method.ts'

/** Reading them takes some tenths of a second of an unseal; they take some MiB of memory. */
const METHODS_MAX = 10_000
const METHODS = 'method/'
const REMOVED = 'removed-method/'
const OLD_ENTRY = 'methods'

const entrySchema = v.pipe(v.string(), v.parseJson(), methodSchema)
const oldSchema = v.object({ methods: v.array(methodSchema), leaving: v.array(v.string()) })

export class MfaMethods {
  readonly #storage: Storage
  readonly #byId = new Map<string, Method>()
  readonly #idByName = new Map<string, string>()
  /** IDs of methods that were removed, whose secrets are still being removed. */
  readonly #removed: Set<string>
  #lastPosition: number
  /** The entries of the older version are still to be written one by one. */
  #isOld: boolean
  #lastChange: Promise<unknown> = Promise.resolve()

  /** Throws a Fault for an entry that is damaged. */
  constructor(storage: Storage) {
    this.#storage = storage
    const old = new StoredSetting(storage, OLD_ENTRY, oldSchema, { methods: [], leaving: [] }).value
    this.#isOld = old.methods.length + old.leaving.length > 0
    const kept = storage.list(METHODS).map((id) => this.#read(id))
    const ordered = old.methods.map((each, position) => ({ ...each, position }))
    for (const each of [...ordered, ...kept].sort((a, b) => a.position - b.position)) this.#add(each)
    this.#lastPosition = this.all.at(-1)?.position ?? 0
    this.#removed = new Set([...old.leaving, ...storage.list(REMOVED)])
  }

  #read(id: string): Method {
    const text = this.#storage.get(METHODS + id)?.toString('utf8') ?? ''
    const method = v.safeParse(entrySchema, text)
    if (!method.success) throw new Fault(`the entry of MFA method ${id} is damaged`)
    return method.output
  }

  #add(method: Method): void {
    const before = this.#byId.get(method.id)
    if (before) this.#idByName.delete(before.name)
    this.#byId.set(method.id, method)
    if (method.name !== '') this.#idByName.set(method.name, method.id)
  }

  /** In the order in which they were created. */
  get all(): readonly Method[] {
    return [...this.#byId.values()]
  }

  get ids(): Iterable<string> {
    return this.#byId.keys()
  }

  get removed(): readonly string[] {
    return [...this.#removed]
  }

  byId(id: string): Method | undefined {
    return this.#byId.get(id)
  }

  byName(name: string): Method | undefined {
    const id = this.#idByName.get(name)
    return id === undefined ? undefined : this.#byId.get(id)
  }

  /**
   * Creates a method, or replaces all parameters of the one with that ID or name; `name` undefined: it keeps its own. Resolves
   * with its ID. Rejects with a Rejection (400) for a name that another method has, and for an unknown ID.
   */
  write(which: { readonly id?: string; readonly name?: string }, settings: MethodSettings): Promise<string> {
    return this.#serialized(async () => {
      const { id, name } = which
      const before = id === undefined ? this.byName(name ?? '') : this.byId(id)
      if (id !== undefined && !before)
        throw new Rejection(400, `configuration for method ID ${JSON.stringify(id)} does not exist`)
      if (!before && this.#byId.size >= METHODS_MAX) throw new Rejection(400, `at most ${METHODS_MAX} MFA methods`)
      const position = before?.position ?? ++this.#lastPosition
      const method = { id: before?.id ?? randomUUID(), name: name ?? before?.name ?? '', position, ...settings }
      const holder = this.byName(method.name)
      if (holder && holder.id !== method.id) {
        throw new Rejection(400, `the name ${JSON.stringify(method.name)} is taken by another MFA method`)
      }
      await this.#commit({ puts: [putOf(method)], deletes: [] })
      this.#add(method)
      return method.id
    })
  }

  /** Removes a method and notes that its secrets are still to be removed. */
  remove(id: string): Promise<void> {
    return this.#serialized(async () => {
      const method = this.#byId.get(id)
      if (!method) return
      await this.#commit({ puts: [{ path: REMOVED + id, value: Buffer.alloc(0) }], deletes: [METHODS + id] })
      this.#byId.delete(id)
      this.#idByName.delete(method.name)
      this.#removed.add(id)
    })
  }

  /** The secrets of a method that was removed are removed. */
  forget(id: string): Promise<void> {
    return this.#serialized(async () => {
      await this.#commit({ puts: [], deletes: [REMOVED + id] })
      this.#removed.delete(id)
    })
  }

  async #serialized<T>(change: () => Promise<T>): Promise<T> {
    const done = this.#lastChange.then(change)
    this.#lastChange = done.catch(() => undefined)
    return done
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

function putOf(method: Method): Batch['puts'][number] {
  return { path: METHODS + method.id, value: Buffer.from(JSON.stringify(method)) }
}
