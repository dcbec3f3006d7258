/**
 * The notice that a promoted cluster owes to the primary that it replaced. It is sent over the old link, with the certificate of
 * that primary, until it is acknowledged, also after restarts. A primary that was away is told within a second of its return.
 * Notice and answer carry proofs of membership, so both clusters must be unsealed.
 */
import { randomBytes } from 'node:crypto'
import { sleep } from '../../platform/clock.ts'
import { messageOf } from '../../platform/errors.ts'
import { LinkClient, LinkError } from '../link/link.ts'
import type { LinkTimings, ReplicationParts } from '../state/parts.ts'
import type { Deposed } from '../primary/claims.ts'
import { type Proofs, statements } from '../link/proofs.ts'
import { sessionOf } from './secondary.ts'
import type { ReplicationState, State } from '../state/state.ts'

export interface FenceNoticeParts extends Pick<ReplicationParts, 'logger' | 'addresses'> {
  readonly state: ReplicationState
  readonly proofs: Proofs
  readonly times: LinkTimings
  /** The other had come further in its own count of epochs. Resolves when this one is above that. */
  readonly onEpoch: (epoch: number) => Promise<void>
  /** Another secondary of it was promoted, and has said so first. Resolves when this one takes no more writes. */
  readonly onRival: (rival: Deposed) => Promise<void>
}

/** True where the replaced primary has this cluster address: once it follows, proven, it needs no notice. */
export function isOwedTo(notice: State['notice'], clusterAddress: string): boolean {
  if (!notice) return false
  return [notice.upstream.address, ...notice.upstream.known].includes(clusterAddress)
}

export class FenceNotice {
  readonly #parts: FenceNoticeParts
  #abort: AbortController | undefined
  #running: Promise<void> = Promise.resolve()

  constructor(parts: FenceNoticeParts) {
    this.#parts = parts
  }

  /** Sends what is owed, in the background; at most one at a time. */
  start(): void {
    if (this.#abort || !this.#parts.state.now.notice) return
    this.#abort = new AbortController()
    this.#running = this.#run(this.#abort.signal)
  }

  async stop(): Promise<void> {
    this.#abort?.abort()
    await this.#running
    this.#abort = undefined
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { state, times, logger } = this.#parts
    let trouble = ''
    for (let notice = state.now.notice; notice && !signal.aborted; notice = state.now.notice) {
      for (const address of new Set([notice.upstream.address, ...notice.upstream.known])) {
        try {
          // oxlint-disable-next-line no-await-in-loop
          await this.#tell(notice, address, signal)
          logger.info('the primary that was replaced takes no more writes', { address, epoch: notice.epoch })
          return
        } catch (error) {
          const text = messageOf(error)
          if (text !== trouble) logger.warn('the primary that was replaced could not be told of it', { error: text })
          trouble = text
        }
      }
      await sleep(times.retryMaxMs / 2, signal)
    }
  }

  async #tell(
    { epoch, fork, upstream }: NonNullable<State['notice']>,
    address: string,
    signal: AbortSignal,
  ): Promise<void> {
    const { state, times, addresses, onEpoch, onRival, proofs } = this.#parts
    if (proofs.isSealed)
      throw new LinkError('sealed', 'this cluster is sealed and cannot prove that it was promoted: unseal it')
    const link = await LinkClient.connect(upstream, address, times.answerMs, signal)
    try {
      const session = await sessionOf(link, upstream.id, times.answerMs)
      if (!session)
        throw new LinkError('version', 'the replaced primary has an older version and gives no nonce: upgrade it')
      const { api, cluster } = addresses()
      const said = { epoch, api, addresses: [cluster] }
      const proof = proofs.of(statements.fence(session, said))
      const nonce = randomBytes(session.nonce.length)
      const fenced = await link.call('Fence', { ...said, fork, nonce, proof }, times.answerMs)
      const answer = proofs.verify(statements.fenced(nonce, fenced.epoch, fenced.rival), fenced.proof)
      if (answer !== 'valid')
        throw new LinkError('unproven', `the answer to the notice carries no valid proof (${answer})`)
      if (fenced.rival) await onRival(fenced.rival)
      else await onEpoch(fenced.epoch)
    } finally {
      link.close()
    }
    await state.change(() => ({ notice: undefined }))
  }
}
