/** Records of an engine in its storage: codecs, the batch of a request, lists of hidden names. */
import * as v from 'valibot'
import { WeakCache } from '../../platform/transient-map.ts'
import { parseRecord } from '../../platform/stored-record.ts'
import type { Batch, Put, Storage } from '../../storage/barrier/storage.ts'
import type { EngineCall } from './engine.ts'
import { isObject } from './fields.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../platform/sliced-work.ts'

/** Encodes and decodes entries. An entry is decoded once for as long as its buffer is the same. Values are shared and must not be modified. */
export class CachedCodec<T extends object> {
  readonly #known = new WeakCache<Buffer, T>()
  readonly #decode: (bytes: Buffer) => T
  readonly #encode: (value: T) => Buffer

  constructor(decode: (bytes: Buffer) => T, encode: (value: T) => Buffer) {
    this.#decode = decode
    this.#encode = encode
  }

  of(bytes: Buffer): T {
    let value = this.#known.get(bytes)
    if (value === undefined) this.#known.keep(bytes, (value = this.#decode(bytes)))
    return value
  }

  /** Encodes a value. If the same buffer is soon decoded, its value is found without decoding. */
  bytes(value: T): Buffer {
    const bytes = this.#encode(value)
    this.#known.note(bytes, value)
    return bytes
  }
}

/** A codec for records with a schema. Throws a Fault for an entry that does not match it. `name` is for the error: `a role`. */
export class StoredRecord<T extends object> {
  readonly #codec: CachedCodec<T>

  constructor(schema: v.GenericSchema<unknown, T>, name: string) {
    const decode = (bytes: Buffer) => parseRecord(schema, bytes, name)
    this.#codec = new CachedCodec(decode, (value) => Buffer.from(JSON.stringify(value)))
  }

  of(bytes: Buffer): T
  of(bytes: Buffer | undefined): T | undefined
  of(bytes: Buffer | undefined): T | undefined {
    return bytes && this.#codec.of(bytes)
  }

  put(path: string, value: T): Put {
    return { path, value: this.#codec.bytes(value) }
  }
}

/** A map of strings. Unlike valibot's record it accepts any name, `constructor` and `__proto__` too. */
export const textRecord = v.custom<Record<string, string>>(
  (value) => isObject(value) && Object.values(value).every((each) => typeof each === 'string'),
)

/** Reads an entry: `storage.get` for durable state, `storage.pending` for decisions about writes. */
export type ReadEntry = (path: string) => Buffer | undefined

/** The batch of a request while it is built. Reads see the changes made so far. */
export class BatchBuilder {
  readonly #storage: Storage
  /** Undefined for a deleted entry. */
  readonly #changed = new Map<string, Buffer | undefined>()

  constructor(storage: Storage) {
    this.#storage = storage
  }

  /** The entry as it will be once this batch and all batches queued before it are durable. */
  get(path: string): Buffer | undefined {
    return this.#changed.get(path) ?? (this.#changed.has(path) ? undefined : this.#storage.pending(path))
  }

  put(path: string, value: Buffer): void {
    this.#changed.set(path, value)
  }

  delete(path: string): void {
    this.#changed.set(path, undefined)
  }

  get batch(): Batch {
    const puts: { path: string; value: Buffer }[] = []
    const deletes: string[] = []
    for (const [path, value] of this.#changed) {
      if (value) puts.push({ path, value })
      else deletes.push(path)
    }
    return { puts, deletes }
  }
}

/** Sorted names of the entries in a folder whose paths are keyed hashes of them: each is read from its entry. */
export async function hiddenNames(
  call: EngineCall,
  folder: string,
  nameOf: (entry: Buffer) => string,
): Promise<string[]> {
  return runSliced(namesOf(call, folder, nameOf), call)
}

function* namesOf({ storage }: EngineCall, folder: string, nameOf: (entry: Buffer) => string): SlicedWork<string[]> {
  const names: string[] = []
  for (const hash of storage.list(folder)) {
    const entry = storage.get(folder + hash)
    if (entry) names.push(nameOf(entry))
    yield RECORD_COST
  }
  return names.sort()
}
