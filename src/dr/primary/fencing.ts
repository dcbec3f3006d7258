/**
 * When a primary takes no more writes: another cluster was promoted (for good, until this one is demoted or disabled), or, where
 * `fence_after` says so, no secondary was heard for that long (until one is heard again).
 *
 * What decides about the role of the store does so one after the other: silence ends with the very call that says that this primary
 * was replaced, and a decision that was made before it must not lift the fence behind it. A decision that comes while this cluster stops, or is no primary any more,
 * is refused, never dropped: who asked for it takes the answer as its promise, and asks again.
 */
import { messageOf } from '../../platform/errors.ts'
import { checkEpoch } from '../link/epoch.ts'
import { LinkError } from '../link/link.ts'
import type { LinkTimings, ReplicationParts } from '../state/parts.ts'
import type { Deposed } from './claims.ts'
import type { Primary } from './primary.ts'
import type { ReplicationState } from '../state/state.ts'

export interface FencingParts extends Pick<ReplicationParts, 'store' | 'logger' | 'settings' | 'transition'> {
  readonly state: ReplicationState
  readonly times: LinkTimings
  readonly primary: () => Pick<Primary, 'silenceMs' | 'deposed' | 'onHeard'> | undefined
}

export class Fencing {
  readonly #parts: FencingParts
  #watch: NodeJS.Timeout | undefined
  #isLooking = false
  /** Between `start` and `stop`: another role than a primary's is not touched from here. */
  #isActive = false
  /** One decision behind the other. */
  #turn: Promise<unknown> = Promise.resolve()

  constructor(parts: FencingParts) {
    this.#parts = parts
  }

  #inTurn<T>(decide: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(decide)
    this.#turn = turn.catch(() => undefined)
    return turn
  }

  /** Another cluster is the primary. Resolves when this one takes no more writes. Rejects with a LinkError when that cannot be decided now. */
  async depose(by: Deposed): Promise<void> {
    const { logger, transition, primary } = this.#parts
    if (!(await this.#inTurn(() => this.#fence(by)))) return
    primary()?.deposed()
    const where = by.api || by.addresses.join(', ')
    logger.error('another cluster was promoted: this one takes no more writes; demote it, then update its primary', {
      epoch: by.epoch,
      by: where,
    })
    try {
      await transition.fenced()
    } catch (error) {
      logger.error('the core could not be told that it is fenced', { error: messageOf(error) })
    }
  }

  /** False where it is fenced already. */
  async #fence({ epoch, addresses, api, heir, isRival, provenBy }: Deposed): Promise<boolean> {
    const { store, state } = this.#parts
    this.#requirePrimary()
    const { deposed: before, forks } = state.now
    const isHeirUnknown = heir !== undefined && before?.epoch === epoch && before.heir === undefined
    if ((before?.epoch ?? -1) >= epoch && !isHeirUnknown) return false
    // Before the epoch rises: a demotion that began meanwhile may leave it to a secondary, which must be able to prove it.
    await state.change(() => ({ provenEpoch: epoch }))
    await store.setRole('fenced', epoch)
    const deposed = { epoch, addresses: [...addresses], api, heir, provenBy }
    const ownSince = isRival ? forks.at(-1)?.sequence : undefined
    await state.change(() => ({ deposed, ownSince, witnessEpoch: undefined }))
    return true
  }

  /**
   * Another secondary of the same primary was promoted, and was the first to say so there: this cluster gives way. Rejects with a
   * LinkError for an epoch that no promotions explain, and where `depose` does.
   */
  async yieldIfDue({ epoch, addresses, api }: Deposed): Promise<void> {
    const { store } = this.#parts
    checkEpoch(epoch, store.epoch)
    await this.depose({ epoch: Math.max(epoch, store.epoch), addresses, api, isRival: true })
  }

  /** The secondary whose proof has fenced this cluster; undefined where none has. */
  get provenBy(): string | undefined {
    const { deposed } = this.#parts.state.now
    return deposed?.provenBy ?? deposed?.heir
  }

  /**
   * A secondary was revoked: where its proof is why this cluster takes no writes, it takes them again, in an epoch above the
   * one that was proven. Resolves with whether that was so. Rejects with a LinkError as `depose` does.
   */
  liftFenceOf(id: string): Promise<boolean> {
    return this.#inTurn(async () => {
      const { logger, state, store } = this.#parts
      const { deposed } = state.now
      if (!deposed || this.provenBy !== id) return false
      this.#requirePrimary()
      const epoch = Math.max(store.epoch, deposed.epoch) + 1
      const { checksum, sequence } = store.position()
      const fork = { sequence, checksum: Buffer.from(checksum), epoch }
      await state.change(({ forks }) => ({
        deposed: undefined,
        resumeEpoch: epoch,
        forks: [...forks, fork],
      }))
      await this.finishLift()
      logger.warn('the secondary that fenced this primary was revoked, this cluster takes writes again', { id, epoch })
      return true
    })
  }

  /** The second half of `liftFenceOf`, also after a crash between the two. Ends a fence for silence where `fence_after` was removed. */
  async finishLift(): Promise<void> {
    const { logger, settings, state, store } = this.#parts
    // The way out for an operator whose secondaries are gone for good: without the setting nothing would lift this fence.
    if (settings.fenceAfterMs === 0 && this.#isForSilence) {
      await store.setRole('own')
      await state.change(() => ({ witnessEpoch: undefined }))
      logger.warn('fence_after was removed from the configuration: writes are taken')
    }
    const { resumeEpoch } = state.now
    if (resumeEpoch === undefined) return
    await store.setRole('own', resumeEpoch)
    await state.change(() => ({ resumeEpoch: undefined }))
  }

  get #isPrimary(): boolean {
    return this.#isActive && this.#parts.state.now.mode === 'primary'
  }

  #requirePrimary(): void {
    if (!this.#isPrimary)
      throw new LinkError('busy', 'this cluster is being stopped, or is no primary any more: ask again')
  }

  /** The primary that this one has replaced had counted further: its rows must stay below ours. Rejects with a LinkError as `yieldIfDue` does. */
  riseAbove(epoch: number): Promise<void> {
    return this.#inTurn(async () => {
      const { store, state } = this.#parts
      if (epoch < store.epoch) return
      this.#requirePrimary()
      if (state.now.deposed) return
      checkEpoch(epoch, store.epoch)
      const { sequence, checksum } = store.position()
      // Fenced for silence it stays so.
      await store.setRole(store.role, epoch + 1)
      const fork = { sequence, checksum: Buffer.from(checksum), epoch: epoch + 1 }
      await state.change(({ forks, witnessEpoch }) => ({
        forks: [...forks, fork],
        witnessEpoch: witnessEpoch === undefined ? undefined : epoch + 1,
      }))
    })
  }

  start(): void {
    this.#isActive = true
    if (this.#parts.settings.fenceAfterMs > 0)
      this.#watch ??= setInterval(() => void this.#look(), this.#parts.times.beatMs)
  }

  /** Resolves when the role of the store is left alone. */
  async stop(): Promise<void> {
    this.#isActive = false
    clearInterval(this.#watch)
    this.#watch = undefined
    await this.#turn
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return
    this.#isLooking = true
    try {
      await this.#inTurn(() => this.#settleSilence())
    } catch (error) {
      this.#parts.logger.warn('whether this primary may write could not be settled', { error: messageOf(error) })
    } finally {
      this.#isLooking = false
    }
  }

  async #settleSilence(): Promise<void> {
    const { settings, primary, state, store, logger } = this.#parts
    const silenceMs = primary()?.silenceMs
    if (silenceMs === undefined || !this.#isPrimary || state.now.deposed) return
    if (silenceMs > settings.fenceAfterMs && store.role === 'own') {
      await state.change(() => ({ witnessEpoch: store.epoch }))
      await store.setRole('fenced')
      logger.error('no secondary was heard for fence_after: no more writes until one is', {
        silent_ms: Math.round(silenceMs),
      })
    } else if (silenceMs <= settings.fenceAfterMs && this.#isForSilence) {
      await store.setRole('own')
      await state.change(() => ({ witnessEpoch: undefined }))
      logger.warn('a secondary was heard again: writes are taken')
    }
  }

  /** True when silence alone is why nothing is written: a promotion elsewhere would have raised the epoch. */
  get #isForSilence(): boolean {
    const { store, state } = this.#parts
    return store.role === 'fenced' && state.now.witnessEpoch === store.epoch && !state.now.deposed
  }

  /**
   * At the start of a primary: those of its secondaries that are promoted meanwhile say so when they call. Resolves when all
   * have called, or after a while.
   */
  async askSecondaries(): Promise<void> {
    const { state, times, logger, primary } = this.#parts
    const missing = new Set(state.now.secondaries.flatMap(({ id, status }) => (status === 'active' ? [id] : [])))
    const ruling = primary()
    if (missing.size === 0 || state.now.deposed || !ruling) return
    const all = new Promise<void>((resolve) => {
      ruling.onHeard = (id) => {
        missing.delete(id)
        if (missing.size === 0) resolve()
      }
    })
    let timer: NodeJS.Timeout | undefined
    await Promise.race([all, new Promise<void>((resolve) => (timer = setTimeout(resolve, times.startMs)))])
    clearTimeout(timer)
    ruling.onHeard = () => undefined
    if (missing.size === 0) return
    logger.warn('secondaries have not called: whether one of them was promoted meanwhile is not known', {
      secondaries: [...missing].join(', '),
    })
  }
}
