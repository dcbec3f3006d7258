/**
 * Stores the state of this server's chains: an entry `local/audit/<uuid>` per device with the chain's ID, its head and an
 * unacknowledged break. The entries are encrypted and local to the server: they are neither replicated nor in snapshots. A restore
 * or the initial sync of a DR secondary removes them; then the device starts a chain with a new ID.
 */
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { type ChainHead, CHAIN_START, newChainId } from './audit-chain.ts'
import type { AuditDevice } from './audit-device.ts'
import type { ChainBreak, ChainState } from './device-chain.ts'

const PREFIX = 'local/audit/'

export const chainHeadSchema = v.object({ sequence: v.pipe(v.number(), v.safeInteger()), hash: v.string() })

const stateSchema = v.object({
  id: v.string(),
  head: chainHeadSchema,
  broken: v.optional(v.object({ file: v.string(), expected: chainHeadSchema, found: v.optional(chainHeadSchema) })),
})

/** The stored facts of a device that determine its chain. */
export interface ChainOwner {
  readonly uuid: string
  readonly head: ChainHead
  readonly isKeyed: boolean
}

export class ChainStates {
  readonly #storage: Storage
  /** The last stored text by device. */
  readonly #stored = new Map<string, string>()

  constructor(storage: Storage) {
    this.#storage = storage
  }

  /** The stored state, or the state of a new chain if there is none or it is damaged. */
  read({ head, isKeyed, uuid }: ChainOwner): ChainState & { readonly broken: ChainBreak | undefined } {
    const bytes = this.#storage.get(PREFIX + uuid)
    const text = v.pipe(v.string(), v.parseJson(), stateSchema)
    const stored = bytes && v.safeParse(text, bytes.toString('utf8'))
    if (stored?.success) {
      const { broken, head: last, id } = stored.output
      const found = broken && { file: broken.file, expected: broken.expected, found: broken.found }
      return { id, head: last, isNew: false, trust: 'keyed', broken: found }
    }
    const trust = isKeyed ? 'keyed' : head.sequence > 0 ? 'legacy' : 'new'
    return { id: newChainId(), head: isKeyed ? CHAIN_START : head, isNew: true, trust, broken: undefined }
  }

  /** Stores the state of a device after the lines up to its head are durable. */
  async save(uuid: string, device: AuditDevice): Promise<void> {
    const head = await device.sync()
    const text = JSON.stringify({ id: device.chainId, head, broken: device.brokenChain })
    if (this.#stored.get(uuid) === text) return
    await this.#storage.commit({ puts: [{ path: PREFIX + uuid, value: Buffer.from(text) }], deletes: [] })
    this.#stored.set(uuid, text)
  }

  async remove(uuid: string): Promise<void> {
    this.#stored.delete(uuid)
    await this.#storage.commit({ puts: [], deletes: [PREFIX + uuid] })
  }
}
