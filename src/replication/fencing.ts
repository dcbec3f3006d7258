/**
 * When a primary takes no more writes: another cluster was promoted (for good, until this one is demoted or disabled), or, where
 * `fence_after` says so, no secondary was heard for that long (until one is heard again).
 */
import { messageOf } from '../kit/errors.ts'
import type { LinkTimings, ReplicationParts } from './parts.ts'
import type { Deposed, Primary } from './primary.ts'
import type { ReplicationState } from './state.ts'

export interface FencingParts extends Pick<ReplicationParts, 'store' | 'logger' | 'settings' | 'transition'> {
  readonly state: ReplicationState
  readonly times: LinkTimings
  readonly primary: () => Primary | undefined
}

export class Fencing {
  readonly #parts: FencingParts
  #watch: NodeJS.Timeout | undefined
  #isLooking = false
  #isDeposing = false

  constructor(parts: FencingParts) {
    this.#parts = parts
  }

  /** Another cluster is the primary. Resolves when this one takes no more writes. */
  async depose({ epoch, addresses, api }: Deposed): Promise<void> {
    const { store, state, logger, transition, primary } = this.#parts
    if (state.now.mode !== 'primary' || (state.now.deposed?.epoch ?? -1) >= epoch) return
    // Silence ends with the very call that says it: until it is written that this one was replaced, nothing may lift the fence.
    this.#isDeposing = true
    try {
      await store.setRole('fenced', epoch)
      await state.change(() => ({ deposed: { epoch, addresses: [...addresses], api }, witnessEpoch: undefined }))
      if (store.role !== 'fenced') await store.setRole('fenced', epoch)
    } finally {
      this.#isDeposing = false
    }
    primary()?.deposed()
    const by = api || addresses.join(', ')
    logger.error('another cluster was promoted: this one takes no more writes; demote it, then update its primary', {
      epoch,
      by,
    })
    try {
      await transition.fenced()
    } catch (error) {
      logger.error('the core could not be told that it is fenced', { error: messageOf(error) })
    }
  }

  start(): void {
    if (this.#parts.settings.fenceAfterMs > 0)
      this.#watch ??= setInterval(() => void this.#look(), this.#parts.times.beatMs)
  }

  stop(): void {
    clearInterval(this.#watch)
    this.#watch = undefined
  }

  async #look(): Promise<void> {
    const { settings, primary, state, store, logger } = this.#parts
    const silenceMs = primary()?.silenceMs
    if (silenceMs === undefined || state.now.deposed || this.#isDeposing || this.#isLooking) return
    this.#isLooking = true
    try {
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
    } catch (error) {
      logger.warn('whether this primary may write could not be settled', { error: messageOf(error) })
    } finally {
      this.#isLooking = false
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
