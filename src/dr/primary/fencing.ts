/**
 * When a primary accepts no writes: another cluster was promoted (until this one is demoted or disabled), or, with `fence_after`,
 * no secondary sent a message for that long (until one does).
 *
 * Decisions about the role of the store are serialized: silence ends with the very call that reports a promotion, and a decision that
 * was made before must not lift the fence behind it. A decision that arrives while this cluster stops or is no longer a primary is
 * refused, never dropped: the caller relies on the answer, and retries.
 */
import { messageOf } from '../../platform/errors.ts'
import { Mutex } from '../../platform/mutex.ts'
import { checkEpoch, LinkError } from '../link/link.ts'
import type { LinkTimings, ReplicationContext } from '../state/replication-context.ts'
import type { ReplicationState, ReplicationRecord } from '../state/replication-state.ts'
import type { NewerPrimary } from './promotion-claims.ts'
import type { Primary } from './primary.ts'

export interface FencingContext extends Pick<ReplicationContext, 'store' | 'logger' | 'settings' | 'transition'> {
  readonly state: ReplicationState
  readonly times: LinkTimings
  readonly primary: () => Pick<Primary, 'silenceMs' | 'deposed' | 'onHeard'> | undefined
}

export class Fencing {
  readonly #context: FencingContext
  #silenceTimer: NodeJS.Timeout | undefined
  #graceTimer: NodeJS.Timeout | undefined
  #isChecking = false
  /** True between `start` and `stop`: the role of a secondary is never changed here. */
  #isActive = false
  readonly #decisions = new Mutex()

  constructor(context: FencingContext) {
    this.#context = context
  }

  /** Another cluster is the primary. Resolves when this one is fenced. Rejects with a LinkError if that cannot be decided now. */
  async depose(by: NewerPrimary): Promise<void> {
    const { logger, transition, primary } = this.#context
    if (!(await this.#decisions.runExclusive(() => this.#fence(by)))) return
    primary()?.deposed()
    const where = by.api || by.addresses.join(', ')
    logger.error('another cluster was promoted, this primary is fenced; demote it, then join it to the new primary', {
      epoch: by.epoch,
      by: where,
    })
    try {
      await transition.fenced()
    } catch (error) {
      logger.error('closing the secrets core after a fence failed', { error: messageOf(error) })
    }
  }

  /** Resolves to false if it is already fenced. */
  async #fence({ epoch, addresses, api, heir, isRival, provenBy }: NewerPrimary): Promise<boolean> {
    const { store, state } = this.#context
    this.#requirePrimary()
    const { deposed: before, forks } = state.now
    const isHeirUnknown = heir !== undefined && before?.epoch === epoch && before.heir === undefined
    if ((before?.epoch ?? -1) >= epoch && !isHeirUnknown) return false
    // Before the epoch rises: after a demotion that began meanwhile the secondary must be able to prove it.
    await state.change(() => ({ provenEpoch: epoch }))
    await store.setRole('fenced', epoch)
    const deposed = { epoch, addresses: [...addresses], api, heir, provenBy }
    const ownSince = isRival ? forks.at(-1)?.sequence : undefined
    await state.change(() => ({ deposed, ownSince, witnessEpoch: undefined }))
    return true
  }

  /**
   * Another secondary of the same primary was promoted and its notice came first: this cluster yields. Rejects with a LinkError for an
   * epoch too far ahead, and as `depose` does.
   */
  async yieldToRival({ epoch, addresses, api }: NewerPrimary): Promise<void> {
    const { store } = this.#context
    checkEpoch(epoch, store.epoch)
    await this.depose({ epoch: Math.max(epoch, store.epoch), addresses, api, isRival: true })
  }

  /** ID of the secondary whose proof fenced this cluster. */
  get provenBy(): string | undefined {
    const { deposed } = this.#context.state.now
    return deposed?.provenBy ?? deposed?.heir
  }

  /**
   * A secondary was revoked: lifts the fence that its proof caused, in an epoch above the proven one. Resolves to whether it did.
   * Rejects with a LinkError as `depose` does.
   */
  liftFenceOf(id: string): Promise<boolean> {
    return this.#decisions.runExclusive(async () => {
      const { logger, state, store } = this.#context
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
      logger.warn('the secondary that fenced this primary was revoked, fence lifted', { id, epoch })
      return true
    })
  }

  /** The second step of `liftFenceOf`, also after a crash between the two. Lifts a fence for silence if `fence_after` was removed. */
  async finishLift(): Promise<void> {
    const { logger, settings, state, store } = this.#context
    // For an operator who lost all secondaries: nothing else would lift this fence.
    if (settings.fenceAfterMs === 0 && this.#isForSilence) {
      await store.setRole('own')
      await state.change(() => ({ witnessEpoch: undefined }))
      logger.warn('fence_after was removed from the configuration, fence lifted')
    }
    const { resumeEpoch } = state.now
    if (resumeEpoch === undefined) return
    await store.setRole('own', resumeEpoch)
    await state.change(() => ({ resumeEpoch: undefined }))
  }

  get #isPrimary(): boolean {
    return this.#isActive && this.#context.state.now.mode === 'primary'
  }

  #requirePrimary(): void {
    if (!this.#isPrimary) throw new LinkError('busy', 'this cluster is stopping or is no longer a primary, try again')
  }

  /** The replaced primary had a higher epoch: rows of this cluster must be above it. Rejects with a LinkError as `yieldToRival` does. */
  raiseEpochAbove(epoch: number): Promise<void> {
    return this.#decisions.runExclusive(async () => {
      const { store, state } = this.#context
      if (epoch < store.epoch) return
      this.#requirePrimary()
      if (state.now.deposed) return
      checkEpoch(epoch, store.epoch)
      const { sequence, checksum } = store.position()
      // A fence for silence stays.
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
    if (this.#context.settings.fenceAfterMs > 0)
      this.#silenceTimer ??= setInterval(() => void this.#checkSilence(), this.#context.times.heartbeatMs)
  }

  /** Resolves when no decision is pending. */
  async stop(): Promise<void> {
    this.#isActive = false
    clearTimeout(this.#graceTimer)
    clearInterval(this.#silenceTimer)
    this.#silenceTimer = undefined
    await this.#decisions.whenIdle()
  }

  async #checkSilence(): Promise<void> {
    if (this.#isChecking) return
    this.#isChecking = true
    try {
      await this.#decisions.runExclusive(() => this.#applySilenceRule())
    } catch (error) {
      this.#context.logger.warn('fence check failed, will retry', { error: messageOf(error) })
    } finally {
      this.#isChecking = false
    }
  }

  async #applySilenceRule(): Promise<void> {
    const { settings, primary, state, store, logger } = this.#context
    const silenceMs = primary()?.silenceMs
    if (silenceMs === undefined || !this.#isPrimary || state.now.deposed) return
    if (silenceMs > settings.fenceAfterMs && store.role === 'own') {
      await state.change(() => ({ witnessEpoch: store.epoch }))
      await store.setRole('fenced')
      logger.error('no heartbeat from a secondary within fence_after, this primary is fenced until one connects', {
        silent_ms: Math.round(silenceMs),
      })
    } else if (silenceMs <= settings.fenceAfterMs && this.#isForSilence) {
      await store.setRole('own')
      await state.change(() => ({ witnessEpoch: undefined }))
      logger.info('DR secondary connected again, fence lifted')
    }
  }

  /** Whether silence is the only reason for the fence: a promotion elsewhere would have raised the epoch. */
  get #isForSilence(): boolean {
    const { store, state } = this.#context
    return store.role === 'fenced' && state.now.witnessEpoch === store.epoch && !state.now.deposed
  }

  /**
   * At the start of a primary: waits for its secondaries, one of which may have been promoted. Resolves when all have connected, or
   * after `startMs`. One that is still missing `graceMs` later is logged.
   */
  async awaitSecondaries(): Promise<void> {
    const { state, times, logger, primary } = this.#context
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
    if (missing.size === 0 || !this.#isActive) return void (ruling.onHeard = () => undefined)
    this.#graceTimer = setTimeout(() => {
      ruling.onHeard = () => undefined
      const names = state.now.secondaries.flatMap(({ id }) => (missing.has(id) ? [id] : []))
      if (names.length === 0 || state.now.deposed) return
      logger.warn('DR secondaries did not connect after the start, one of them may have been promoted', {
        secondaries: names.join(', '),
      })
    }, times.graceMs)
  }
}

export interface FenceState {
  /** `replaced`: another cluster was promoted. `isolated`: no message from a secondary for `fence_after`. */
  readonly reason: 'replaced' | 'isolated'
  /** For clients: names clusters and addresses, no paths. */
  readonly text: string
}

interface FenceQuery {
  readonly context: Pick<ReplicationContext, 'settings'> & { readonly store: Pick<ReplicationContext['store'], 'role'> }
  readonly state: Pick<ReplicationRecord, 'deposed' | 'mode'>
}

/** Undefined unless the cluster is a fenced primary. */
export function fenceStateOf(
  { context, state }: FenceQuery,
  primary: Pick<Primary, 'silenceMs' | 'active' | 'connected' | 'presence'> | undefined,
): FenceState | undefined {
  if (state.mode !== 'primary' || context.store.role === 'own') return undefined
  if (state.deposed) return { reason: 'replaced', text: replacedText(state.deposed) }
  const [silent, limit] = [primary?.silenceMs ?? 0, context.settings.fenceAfterMs].map((ms) => Math.round(ms / 1000))
  const unauthenticated = (primary?.active ?? []).flatMap(({ id }) => {
    const connected = primary?.connected.get(id)
    return primary?.presence.isConnected(id, connected) && !connected?.isAuthenticated ? [id] : []
  })
  return { reason: 'isolated', text: isolatedText(`${silent} s (fence_after is ${limit} s)`, unauthenticated) }
}

/** A connected secondary without a proof of membership does not end the silence: usually it is sealed after a restart. */
function isolatedText(silence: string, unauthenticated: readonly string[]): string {
  if (unauthenticated.length === 0) return `no heartbeat from a secondary for ${silence}`
  const names = unauthenticated.map((id) => `"${id}"`).join(', ')
  return `no heartbeat from an authenticated secondary for ${silence}, connected and not authenticated (sealed?): ${names}`
}

function replacedText({ addresses, api, heir, provenBy }: NonNullable<ReplicationRecord['deposed']>): string {
  const where = api || addresses.join(', ')
  if (heir !== undefined) return `replaced by "${heir}" at ${where}`
  return `replaced by a cluster at ${where}${provenBy === undefined ? '' : `, reported by "${provenBy}"`}`
}
