/**
 * Promotion: what prevents it, the steps that survive a crash, and the notice to the replaced primary. The notice is sent over the
 * old link, with the certificate of that primary, until it is acknowledged, also after restarts. Notice and reply carry proofs of
 * membership, so both clusters must be unsealed.
 */
import { randomBytes } from 'node:crypto'
import { sleep } from '../../platform/clock.ts'
import { messageOf } from '../../platform/errors.ts'
import type { ReplicaStore } from '../../storage/store/replica.ts'
import { LinkClient, LinkError } from '../link/link.ts'
import { type Proofs, statements } from '../link/proofs.ts'
import type { NewerPrimary } from '../primary/promotion-claims.ts'
import type { LinkTimings, ReplicationContext } from '../state/replication-context.ts'
import type { ReplicationState, ReplicationRecord } from '../state/replication-state.ts'
import { sessionOf } from './join.ts'
import type { Secondary } from './secondary.ts'

/** Undefined if the initial sync is complete, the history is that of the primary, and no other promotion is known. */
export function notReadyReason(
  store: Pick<ReplicaStore, 'isWhole'>,
  { upstream }: ReplicationRecord,
  secondary: Pick<Secondary, 'isDiverged' | 'replaced'> | undefined,
): string | undefined {
  if (!store.isWhole) return 'replication is still catching up: the initial sync is not complete'
  if (upstream && !upstream.hasJoined)
    return 'replication is still catching up: the primary has not been reached since update-primary'
  if (secondary?.isDiverged) return 'replication is still catching up: the primary has a different history'
  const replaced = secondary?.replaced
  return replaced === undefined ? undefined : `another cluster may be the primary already (${replaced})`
}

/** The steps that must survive a crash. Idempotent: `promoting` in the state is set before and cleared by the last step. */
export async function becomePrimary(
  { state, store }: { readonly state: ReplicationState; readonly store: ReplicaStore },
  epoch: number,
): Promise<void> {
  const { checksum, sequence } = store.position()
  const fork = { sequence, epoch, checksum: Buffer.from(checksum) }
  await store.setRole('own', epoch)
  if (!store.isWhole) await store.finishCopy()
  await state.change(({ forks, upstream }) => ({
    mode: 'primary',
    authority: undefined,
    secondaries: [],
    upstream: undefined,
    needsToken: false,
    forks: [...forks, fork],
    notice: upstream && { upstream, epoch, fork },
    promoting: undefined,
    provenEpoch: epoch,
    deposed: undefined,
    ownSince: undefined,
    witnessEpoch: undefined,
    lastReindexMs: 0,
  }))
}

export interface PromotionNoticeContext extends Pick<ReplicationContext, 'logger' | 'addresses'> {
  readonly state: ReplicationState
  readonly proofs: Proofs
  readonly times: LinkTimings
  /** The replaced primary has a higher epoch. Resolves when this cluster is above it. */
  readonly onEpoch: (epoch: number) => Promise<void>
  /** Another secondary was promoted and its notice came first. Resolves when this cluster is fenced. */
  readonly onRival: (rival: NewerPrimary) => Promise<void>
}

export class PromotionNotice {
  readonly #context: PromotionNoticeContext
  #abort: AbortController | undefined
  #running: Promise<void> = Promise.resolve()

  constructor(context: PromotionNoticeContext) {
    this.#context = context
  }

  /** Sends a pending notice in the background. */
  start(): void {
    if (this.#abort || !this.#context.state.now.notice) return
    this.#abort = new AbortController()
    this.#running = this.#run(this.#abort.signal)
  }

  async stop(): Promise<void> {
    this.#abort?.abort()
    await this.#running
    this.#abort = undefined
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { state, times, logger } = this.#context
    let trouble = ''
    for (let notice = state.now.notice; notice && !signal.aborted; notice = state.now.notice) {
      for (const address of new Set([notice.upstream.address, ...notice.upstream.known])) {
        try {
          // oxlint-disable-next-line no-await-in-loop
          await this.#send(notice, address, signal)
          logger.info('the replaced primary acknowledged the promotion', { address, epoch: notice.epoch })
          return
        } catch (error) {
          const text = messageOf(error)
          if (text !== trouble)
            logger.warn('sending the promotion notice to the replaced primary failed, will retry', { error: text })
          trouble = text
        }
      }
      await sleep(times.retryMaxMs / 2, signal)
    }
  }

  async #send(
    { epoch, fork, upstream }: NonNullable<ReplicationRecord['notice']>,
    address: string,
    signal: AbortSignal,
  ): Promise<void> {
    const { state, times, addresses, onEpoch, onRival, proofs } = this.#context
    if (proofs.isSealed)
      throw new LinkError('sealed', 'this cluster is sealed and cannot prove its promotion: unseal it')
    const link = await LinkClient.connect(upstream, address, times.answerMs, signal)
    try {
      const session = await sessionOf(link, upstream.id, times.answerMs)
      if (!session)
        throw new LinkError('version', 'the replaced primary has an older version without proofs: upgrade it')
      const { api, cluster, others = [] } = addresses()
      const announcement = { epoch, api, addresses: [cluster, ...others] }
      const proof = proofs.of(statements.fence(session, announcement))
      const nonce = randomBytes(session.nonce.length)
      const fenced = await link.call('Fence', { ...announcement, fork, nonce, proof }, times.answerMs)
      const answer = proofs.verify(statements.fenced(nonce, fenced.epoch, fenced.rival), fenced.proof)
      if (answer !== 'valid') throw new LinkError('unproven', `the reply to the notice has no valid proof (${answer})`)
      if (fenced.rival) await onRival(fenced.rival)
      else await onEpoch(fenced.epoch)
    } finally {
      link.close()
    }
    await state.change(() => ({ notice: undefined }))
  }
}
