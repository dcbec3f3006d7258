/**
 * A note about the restore of a snapshot into an empty server, which no audit device could record. It is kept until the core that opens
 * next has recorded it. It is a local entry, so it is in no snapshot, and not encrypted, because no key is available when it is written.
 */
import * as v from 'valibot'
import type { Store } from '../store/store.ts'

const PATH = 'local/origin'

const originSchema = v.object({
  atMs: v.number(),
  requestId: v.string(),
  /** Address of the client; empty if unknown. */
  remote: v.string(),
})

export type RestoreOrigin = v.InferOutput<typeof originSchema>

export class RestoreOriginNote {
  readonly #store: Store

  constructor(store: Store) {
    this.#store = store
  }

  /** Undefined for a missing or malformed note. */
  read(): RestoreOrigin | undefined {
    const value = this.#store.get(PATH)?.value
    const text = value === undefined ? '' : Buffer.from(value).toString('utf8')
    const note = v.safeParse(v.pipe(v.string(), v.parseJson(), originSchema), text)
    return note.success ? note.output : undefined
  }

  async write(origin: RestoreOrigin): Promise<void> {
    await this.#store.commit({ puts: [{ path: PATH, value: Buffer.from(JSON.stringify(origin)) }], deletes: [] })
  }

  async remove(): Promise<void> {
    await this.#store.commit({ puts: [], deletes: [PATH] })
  }
}
