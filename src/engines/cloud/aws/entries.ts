/**
 * Where a mount keeps what, and how it is written. Names of roles and users are in values only: a path holds a keyed hash of
 * them, as names of entries are not encrypted.
 */
import * as v from 'valibot'
import type { Put, Storage } from '../../../storage/barrier/storage.ts'
import { Fault, Refusal } from '../../../platform/errors.ts'
import { CachedCodec } from '../../framework/records.ts'
import type { MountFacts } from '../../framework/engine.ts'
import { RECORD_COST, type SlicedWork } from '../../../platform/sliced-work.ts'

export const at = {
  root: 'config/root',
  lease: 'config/lease',
  roles: 'role/',
  users: 'user/',
  intents: 'intent/',
  keyIntents: 'key-intent/',
  staticRoles: 'static-role/',
} as const

/** What may be read of entries: `get` tells what is durable, `pending` what a write is decided upon. */
export type Reading = (path: string) => Buffer | undefined

/** The core was sealed meanwhile: there is nothing wrong with the entry. */
export function isSealed(error: unknown): boolean {
  return error instanceof Refusal && error.code === 'sealed'
}

/** What `read` returns; undefined for an entry that cannot be read. Throws a Refusal while sealed. */
export function whole<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (error) {
    if (isSealed(error)) throw error
    return undefined
  }
}

/** One kind of entry. */
export class Kept<T extends object> {
  readonly #decoded: CachedCodec<T>

  constructor(schema: v.GenericSchema<unknown, T>, what: string) {
    const stored = v.pipe(v.string(), v.parseJson(), schema)
    const decode = (bytes: Buffer): T => {
      const parsed = v.safeParse(stored, bytes.toString('utf8'))
      if (!parsed.success) throw new Fault(`the entry of ${what} is damaged, or of another version of this program`)
      return parsed.output
    }
    this.#decoded = new CachedCodec(decode, (value) => Buffer.from(JSON.stringify(value)))
  }

  /** Throws a Fault for an entry that is damaged. The value is shared: nobody may change it. */
  of(bytes: Buffer | undefined): T | undefined {
    return bytes && this.#decoded.of(bytes)
  }

  put(path: string, value: T): Put {
    return { path, value: this.#decoded.bytes(value) }
  }
}

/** Entries that have a name, below one folder. */
export class Named<T extends { readonly name: string }> {
  readonly #folder: string
  readonly #kept: Kept<T>

  constructor(folder: string, schema: v.GenericSchema<unknown, T>, what: string) {
    this.#folder = folder
    this.#kept = new Kept(schema, what)
  }

  path({ secret }: Pick<MountFacts, 'secret'>, name: string): string {
    return this.#folder + secret.name(`${this.#folder}\0${name}`)
  }

  read(reading: Reading, mount: Pick<MountFacts, 'secret'>, name: string): T | undefined {
    return this.#kept.of(reading(this.path(mount, name)))
  }

  put(mount: Pick<MountFacts, 'secret'>, value: T): Put {
    return this.#kept.put(this.path(mount, value.name), value)
  }

  /**
   * All of them, in the order of their names. Throws for an entry that cannot be read, or gives the error to `onDamaged` and
   * leaves the entry out. Throws a Refusal while sealed.
   */
  *all(storage: Storage, onDamaged?: (error: unknown) => void): SlicedWork<T[]> {
    const found: T[] = []
    for (const entry of storage.list(this.#folder)) {
      try {
        const value = this.#kept.of(storage.get(this.#folder + entry))
        if (value) found.push(value)
      } catch (error) {
        if (!onDamaged || isSealed(error)) throw error
        onDamaged(error)
      }
      yield RECORD_COST
    }
    return found.sort((a, b) => (a.name < b.name ? -1 : 1))
  }
}
