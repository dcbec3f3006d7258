/**
 * The stored entries of a mount. Names of roles and users are only in values. Paths contain keyed hashes of them, because paths
 * of the store are not encrypted.
 */
import type * as v from 'valibot'
import { Refusal } from '../../../platform/errors.ts'
import { RECORD_COST, type SlicedWork } from '../../../platform/sliced-work.ts'
import type { Put, Storage } from '../../../storage/barrier/storage.ts'
import { type MountFacts, oneError, Rejection } from '../../framework/engine.ts'
import { type ReadEntry, StoredRecord } from '../../framework/records.ts'

export const ENTRY_PATHS = {
  root: 'config/root',
  lease: 'config/lease',
  roles: 'role/',
  users: 'user/',
  intents: 'intent/',
  keyIntents: 'key-intent/',
  staticRoles: 'static-role/',
} as const

/** Whether an entry could not be read because the core was sealed. */
export function isSealed(error: unknown): boolean {
  return error instanceof Refusal && error.code === 'sealed'
}

/** The result of `read`; undefined for a damaged entry. Throws a Refusal while sealed. */
export function readable<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (error) {
    if (isSealed(error)) throw error
    return undefined
  }
}

/** Records with a name, in one folder. */
export class NamedRecords<T extends { readonly name: string }> {
  readonly #folder: string
  readonly #record: StoredRecord<T>

  constructor(folder: string, schema: v.GenericSchema<unknown, T>, recordName: string) {
    this.#folder = folder
    this.#record = new StoredRecord(schema, recordName)
  }

  path({ secret }: Pick<MountFacts, 'secret'>, name: string): string {
    return this.#folder + secret.name(`${this.#folder}\0${name}`)
  }

  read(readEntry: ReadEntry, mount: Pick<MountFacts, 'secret'>, name: string): T | undefined {
    return this.#record.of(readEntry(this.path(mount, name)))
  }

  put(mount: Pick<MountFacts, 'secret'>, value: T): Put {
    return this.#record.put(this.path(mount, value.name), value)
  }

  /**
   * All records, ordered by name. Throws for a damaged entry, or passes the error to `onDamaged` and omits the entry. Throws a
   * Refusal while sealed.
   */
  *all(storage: Storage, onDamaged?: (error: unknown) => void): SlicedWork<T[]> {
    const all: T[] = []
    for (const entry of storage.list(this.#folder)) {
      try {
        const value = this.#record.of(storage.get(this.#folder + entry))
        if (value) all.push(value)
      } catch (error) {
        if (!onDamaged || isSealed(error)) throw error
        onDamaged(error)
      }
      yield RECORD_COST
    }
    return all.sort((a, b) => (a.name < b.name ? -1 : 1))
  }
}

const NAME = /^\w(?:[\w.@-]{0,510}\w)?$/

/** Checks the name of a role or static role. Throws a Rejection (404), as Vault does for an unknown path. */
export function checkName(name: string): void {
  if (!NAME.test(name)) throw new Rejection(404, oneError('unsupported path'))
}
