/** A setting of the core that callers change: one entry, known in memory once it is durable. */
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { Fault } from '../../platform/errors.ts'

export class StoredSetting<T> {
  readonly #storage: Storage
  readonly #path: string
  readonly #schema: v.GenericSchema<unknown, T>
  readonly #fallback: T
  #value: T

  /** Throws a Fault for an entry that is damaged. */
  constructor(storage: Storage, path: string, schema: v.GenericSchema<unknown, T>, fallback: T) {
    this.#storage = storage
    this.#path = path
    this.#schema = schema
    this.#fallback = fallback
    this.#value = this.#parse(storage.get(path))
  }

  /** What is durable. */
  get value(): T {
    return this.#value
  }

  /** Turns what is pending into something else; without an `await` in between, so two who do it follow one another. */
  async change(turn: (pending: T) => T): Promise<void> {
    const next = turn(this.#parse(this.#storage.pending(this.#path)))
    await this.#storage.commit({ puts: [{ path: this.#path, value: Buffer.from(JSON.stringify(next)) }], deletes: [] })
    this.#value = next
  }

  /** Back to what it is at the beginning. */
  async clear(): Promise<void> {
    await this.#storage.commit({ puts: [], deletes: [this.#path] })
    this.#value = this.#fallback
  }

  #parse(kept: Buffer | undefined): T {
    if (!kept) return this.#fallback
    const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), this.#schema), kept.toString('utf8'))
    if (!parsed.success) throw new Fault(`the setting ${this.#path} is damaged`)
    return parsed.output
  }
}
