/** A setting of the core that callers change: one entry, cached in memory when it is durable. */
import type * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { parseRecord } from '../../platform/stored-record.ts'

export class StoredSetting<T> {
  readonly #storage: Storage
  readonly #path: string
  readonly #schema: v.GenericSchema<unknown, T>
  readonly #fallback: T
  #value: T

  /** Throws a Fault for a damaged entry. */
  constructor(storage: Storage, path: string, schema: v.GenericSchema<unknown, T>, fallback: T) {
    this.#storage = storage
    this.#path = path
    this.#schema = schema
    this.#fallback = fallback
    this.#value = this.#parse(storage.get(path))
  }

  /** The durable value. */
  get value(): T {
    return this.#value
  }

  /** Commits a new value computed from the pending one. There is no `await` in between, so concurrent changes do not overwrite each other. */
  async change(update: (pending: T) => T): Promise<void> {
    const next = update(this.#parse(this.#storage.pending(this.#path)))
    await this.#storage.commit({ puts: [{ path: this.#path, value: Buffer.from(JSON.stringify(next)) }], deletes: [] })
    this.#value = next
  }

  /** Resets the setting to its default. */
  async clear(): Promise<void> {
    await this.#storage.commit({ puts: [], deletes: [this.#path] })
    this.#value = this.#fallback
  }

  #parse(stored: Buffer | undefined): T {
    return stored ? parseRecord(this.#schema, stored, `the setting ${this.#path}`) : this.#fallback
  }
}
