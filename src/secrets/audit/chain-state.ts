/**
 * Where the chains of this server stand, one entry `local/audit/<uuid>` for each device: its ID, its head, and a break that
 * no operator has acknowledged. The entries are encrypted and belong to this server: they are in no replication log and in
 * no snapshot, and a restore or the copy of a primary removes them. Then the device begins a chain with another ID.
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

/** A device as it is kept, as far as its chain depends on it. */
export interface ChainOwner {
  readonly uuid: string
  readonly head: ChainHead
  readonly isKeyed: boolean
}

export class ChainStates {
  readonly #storage: Storage
  /** What was stored last, by device. */
  readonly #stored = new Map<string, string>()

  constructor(storage: Storage) {
    this.#storage = storage
  }

  /** The stored state, or that of a new chain. A damaged entry counts as none. */
  read({ head, isKeyed, uuid }: ChainOwner): ChainState & { readonly broken: ChainBreak | undefined } {
    const bytes = this.#storage.get(PREFIX + uuid)
    const text = v.pipe(v.string(), v.parseJson(), stateSchema)
    const kept = bytes && v.safeParse(text, bytes.toString('utf8'))
    if (kept?.success) {
      const { broken, head: last, id } = kept.output
      const found = broken && { file: broken.file, expected: broken.expected, found: broken.found }
      return { id, head: last, isNew: false, trust: 'keyed', broken: found }
    }
    const trust = isKeyed ? 'keyed' : head.sequence > 0 ? 'legacy' : 'new'
    return { id: newChainId(), head: isKeyed ? CHAIN_START : head, isNew: true, trust, broken: undefined }
  }

  /** Stores the state of a device, once the lines up to its head survive a power cut. */
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
