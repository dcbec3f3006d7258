/**
 * How the entries of a server came here, where no core could record it: a snapshot was restored into a server without any. The
 * note lies beside the entries until the core that opens next has recorded it. It belongs to this machine (`local/`), so no snapshot
 * has it, and it is not encrypted: while it is written no key is at hand.
 */
import * as v from 'valibot'
import type { Store } from '../store/store.ts'

const PATH = 'local/origin'

const originSchema = v.object({
  atMs: v.number(),
  requestId: v.string(),
  /** Address of the caller; empty where none was seen. */
  remote: v.string(),
})

export type Origin = v.InferOutput<typeof originSchema>

export class OriginNote {
  readonly #store: Store

  constructor(store: Store) {
    this.#store = store
  }

  /** Undefined where there is none, or none that can be read. */
  read(): Origin | undefined {
    const value = this.#store.get(PATH)?.value
    const text = value === undefined ? '' : Buffer.from(value).toString('utf8')
    const note = v.safeParse(v.pipe(v.string(), v.parseJson(), originSchema), text)
    return note.success ? note.output : undefined
  }

  async write(origin: Origin): Promise<void> {
    await this.#store.commit({ puts: [{ path: PATH, value: Buffer.from(JSON.stringify(origin)) }], deletes: [] })
  }

  async remove(): Promise<void> {
    await this.#store.commit({ puts: [], deletes: [PATH] })
  }
}
