/**
 * Disaster recovery: a second cluster has all data and can replace the first.
 *
 * A *primary* listens on the cluster port and ships its log of commits. A *secondary* dials it, applies the rows in order and
 * acknowledges them. Where the log does not reach (a new secondary, a long absence, another history) the secondary compares Merkle
 * trees and copies only what differs. Rows and entries stay ciphertext: this module has no key, and a sealed secondary replicates.
 * Which requests a secondary serves and refuses is decided in `src/secrets/dr-endpoints/dr-refusals.ts`.
 *
 * Promises. A secondary's history is a prefix of its primary's: same rows, same checksums. What a secondary has acknowledged is on
 * its disk. With `sync`, an answered commit is on every secondary, or the state is `degraded`. At most one primary: each promotion
 * raises the *epoch*, and the new primary notifies the replaced one (`promotion.ts`) until it acknowledges and accepts no more
 * writes; a primary also stops when a peer proves a higher epoch. Both need a proof of membership (`proofs.ts`). Commits of the
 * replaced primary that were never shipped are kept in a file when it joins again (`conflict-report.ts`). A transition is written
 * before it happens (`replication-state.ts`), so one that a crash interrupts is finished at the next start, a promotion at the next
 * unseal. The role is authenticated (`role-code.ts`). Data is wiped only after the new primary was reached and has agreed.
 *
 * Assumes that the daemon closes the barrier before the store becomes a replica and opens it afterwards (`RoleTransitions`). The key of
 * a secondary's certificate gives access to all ciphertext. Fencing a primary and acknowledging a commit take a barrier key.
 *
 * Failures. Link lost: the secondary reconnects with exponential backoff, and its status has the reason. Partition in which the old
 * primary reaches no peer: it continues until it is notified or `fence_after` has passed without a message from any secondary.
 * Hostile peer with a valid certificate: every message is parsed and bounded, and it can acknowledge only what it was sent.
 */
import { randomUUID } from 'node:crypto'
import { messageOf, Refusal } from '../platform/errors.ts'
import { Mutex } from '../platform/mutex.ts'
import type { TreeReport } from '../storage/store/replica.ts'
import { type ReplicationMetrics, replicationMetrics } from './dr-metrics.ts'
import { type Bundle, makeSealingKeys, openBundle, upstreamOf } from './link/bundle.ts'
import { EPOCH_STEP_MAX } from './link/link.ts'
import { Proofs } from './link/proofs.ts'
import { beginDemotion } from './primary/demotion.ts'
import { type FenceState, fenceStateOf, Fencing } from './primary/fencing.ts'
import { Primary } from './primary/primary.ts'
import { firstThatAnswers, preflight } from './secondary/join.ts'
import { becomePrimary, PromotionNotice, notReadyReason } from './secondary/promotion.ts'
import { isCorrupted } from './secondary/repair.ts'
import { Secondary } from './secondary/secondary.ts'
import { type LinkTimings, type ReplicationContext, TIMINGS } from './state/replication-context.ts'
import {
  type KnownUpstream,
  NO_LONGER_PRIMARY,
  NO_REPLICATION,
  requireMode,
  ReplicationState,
  type ReplicationRecord,
} from './state/replication-state.ts'
import { RoleCode } from './state/role-code.ts'
import {
  apiAddressWarnings,
  clusterAddressWarnings,
  type DrStatus,
  type MerkleReport,
  merkleReport,
  primaryBrief,
  primaryStatus,
  type ReindexProgress,
  secondaryBrief,
  secondaryStatus,
} from './status.ts'

export { type Bundle, parseBundle } from './link/bundle.ts'
export type {
  MembershipKey,
  ReplicationContext,
  ReplicationSettings,
  RoleTransitions,
} from './state/replication-context.ts'

const PORT_CLOSED = 'opening the cluster port failed, the next activation token opens it'

export type DrMode = ReplicationRecord['mode']

export class Replication {
  readonly #context: ReplicationContext
  readonly #state: ReplicationState
  readonly #roleCode: RoleCode
  readonly #times: LinkTimings
  readonly #nowMs: () => number
  readonly #proofs: Proofs
  readonly #fencing: Fencing
  readonly #promotionNotice: PromotionNotice
  #primary: Primary | undefined
  #secondary: Secondary | undefined
  readonly #transitions = new Mutex()
  #reindex: ReindexProgress | undefined

  /** Resumes the mode in the stored state: a primary listens, a secondary connects. Rejects with a Fault for the operator. */
  static async open(context: ReplicationContext): Promise<Replication> {
    const replication = new Replication(context)
    await replication.#resume()
    return replication
  }

  private constructor(context: ReplicationContext) {
    this.#context = context
    this.#roleCode = new RoleCode(context.membership)
    this.#state = new ReplicationState(context.store, (next, now) => this.#roleCode.codeFor(next, now))
    this.#times = { ...TIMINGS, ...context.timings }
    this.#nowMs = context.now ?? Date.now
    const set = () => ({ setId: this.#state.now.setId, clusterId: context.store.clusterId })
    this.#proofs = new Proofs(this.#roleCode.key, set)
    const inner = this.#innerContext
    this.#fencing = new Fencing({ ...inner, primary: () => this.#primary })
    this.#promotionNotice = new PromotionNotice({
      ...inner,
      onEpoch: (epoch) => this.#fencing.raiseEpochAbove(epoch),
      onRival: (rival) => this.#fencing.yieldToRival(rival),
    })
  }

  get mode(): DrMode {
    return this.#state.now.mode
  }

  /** Address of the cluster port while it is open. */
  get listening(): { readonly host: string; readonly port: number } | undefined {
    return this.#primary?.address
  }

  /** API address of the primary, else its cluster address, for clients of a secondary; empty if unknown. */
  get primaryAddress(): string {
    const { upstream, deposed } = this.#state.now
    if (deposed) return deposed.api || (deposed.addresses[0] ?? '')
    return this.#secondary?.lastHeartbeat?.api || upstream?.api || upstream?.address || ''
  }

  /** Why this primary accepts no writes; undefined while it does. Read for every request. */
  get fence(): FenceState | undefined {
    return fenceStateOf({ context: this.#context, state: this.#state.now }, this.#primary)
  }

  /** Address of the replaced primary that has not acknowledged the notice. */
  get pendingNotice(): string | undefined {
    return this.#state.now.notice?.upstream.address
  }

  /** Reasons why secondaries on other hosts may not reach this primary. */
  get warnings(): readonly string[] {
    if (this.mode !== 'primary') return []
    const { addresses, listenAddress } = this.#context
    const { primaryClusterAddr: given } = this.#state.now
    const { api, cluster } = addresses()
    return [...clusterAddressWarnings(given || cluster, given, listenAddress.host), ...apiAddressWarnings(api)]
  }

  async #resume(): Promise<void> {
    const { store } = this.#context
    // A refusal is logged and keeps the server sealed; the status is served nevertheless.
    await this.#roleCode.admit(this.#innerContext).catch(() => undefined)
    const { promoting } = this.#state.now
    if (promoting !== undefined) {
      // Verified and finished at the unseal; until then this cluster neither replicates nor serves.
      if (!this.#roleCode.isUsable) return void (this.#secondary = new Secondary(this.#innerContext))
      await becomePrimary(this.#innerContext, promoting)
    }
    const { authority, mode, deposed, isWipeDue } = this.#state.now
    if (mode === 'disabled') {
      if (store.role !== 'own') await store.setRole('own')
      return
    }
    if (mode === 'secondary') {
      if (store.role !== 'replica') await store.setRole('replica')
      // Left by a demotion that was interrupted.
      if (authority || deposed) await this.#state.change(() => NO_LONGER_PRIMARY)
      if (isWipeDue) await this.#wipe()
      await this.#resumeTree()
      return this.#startSecondary()
    }
    await this.#fencing.finishLift()
    if (deposed && store.role !== 'fenced') await store.setRole('fenced', deposed.epoch)
    if (!deposed && store.role === 'replica') await store.setRole('own')
    await this.#resumeTree()
    const { member } = this.#context
    // A member of an HA cluster serves its clients without the link rather than not at all.
    if (member) await this.#attempt(PORT_CLOSED, () => this.#startPrimary(false))
    else await this.#startPrimary(false)
    if (!member?.follows) await this.#fencing.awaitSecondaries()
  }

  /** A rebuild of the Merkle tree reads all entries: the start does not wait for it, and an unreadable entry does not prevent the start. */
  #resumeTree(): Promise<void> {
    const { store, logger } = this.#context
    return store.tree.resume((error) =>
      logger.error('Merkle tree rebuild failed, run a reindex', {
        error: messageOf(error),
      }),
    )
  }

  get #innerContext() {
    return { ...this.#context, state: this.#state, proofs: this.#proofs, times: this.#times, nowMs: this.#nowMs }
  }

  async #startPrimary(mayCreateAuthority: boolean): Promise<void> {
    this.#primary = new Primary({ ...this.#innerContext, onDeposed: (by) => this.#fencing.depose(by) })
    this.#fencing.start()
    this.#promotionNotice.start()
    await this.#primary.start({ mayCreateAuthority })
  }

  #startSecondary(): void {
    this.#secondary ??= new Secondary(this.#innerContext)
    this.#secondary.start()
  }

  #requireMode(mode: DrMode): void {
    requireMode(this.#state.now, mode)
  }

  enablePrimary({ primaryClusterAddr }: { readonly primaryClusterAddr: string }): Promise<void> {
    return this.#transitions.runExclusive(async () => {
      this.#requireMode('disabled')
      await this.#context.store.tree.enable()
      const setId = randomUUID()
      await this.#state.change(() => ({ ...NO_REPLICATION, mode: 'primary', setId, primaryClusterAddr }))
      try {
        await this.#startPrimary(true)
      } catch (error) {
        await this.#stopAll()
        await this.#state.change(() => NO_REPLICATION)
        await this.#context.store.tree.disable()
        throw error
      }
    })
  }

  /** With `secondaryId` it is refused without changes unless this secondary has everything. */
  demote({ secondaryId = '' }: { readonly secondaryId?: string } = {}): Promise<void> {
    return this.#transitions.runExclusive(async () => {
      this.#requireMode('primary')
      const { store } = this.#context
      await beginDemotion(this.#innerContext, this.#primary, secondaryId)
      await this.#stopAll()
      await store.setRole('replica')
      await this.#state.change(() => ({ ...NO_LONGER_PRIMARY, provenEpoch: store.epoch }))
      this.#startSecondary()
    })
  }

  disable(): Promise<void> {
    return this.#transitions.runExclusive(async () => {
      if (this.mode === 'disabled') this.#requireMode('primary')
      const { store, transition } = this.#context
      const wasSecondary = this.mode === 'secondary'
      await this.#stopAll()
      await this.#state.change(() => NO_REPLICATION)
      // The data continues as a separate history.
      if (store.role !== 'own') await store.setRole('own', store.epoch + 1)
      if (!store.isWhole) await store.finishCopy()
      await store.tree.disable()
      if (wasSecondary) await this.#attempt('opening the secrets core failed', () => transition.toPrimary())
    })
  }

  async #attempt(failure: string, run: () => Promise<void>): Promise<void> {
    try {
      await run()
    } catch (error) {
      this.#context.logger.error(failure, { error: messageOf(error) })
    }
  }

  async #stopAll(): Promise<void> {
    await this.#fencing.stop()
    await this.#promotionNotice.stop()
    await this.#secondary?.stop()
    await this.#primary?.stop()
    this.#primary = this.#secondary = undefined
  }

  /** `publicKey`: seals the bundle to it; otherwise the caller wraps it. */
  async issueSecondary(
    request: Parameters<Primary['issue']>[0],
  ): Promise<{ readonly bundle: Bundle } | { readonly sealed: string }> {
    const issued = await this.#runningPrimary.issue(request)
    return typeof issued === 'string' ? { sealed: issued } : { bundle: issued }
  }

  /** Also lifts the fence that this secondary's proof caused. */
  async revokeSecondary(id: string): Promise<void> {
    const primary = this.#runningPrimary
    const hasFenced = this.#fencing.provenBy === id
    // A crash between the two steps leaves the ID removed and the fence in place.
    if (!hasFenced || this.#state.now.secondaries.some((one) => one.id === id)) await primary.revoke(id)
    if (await this.#fencing.liftFenceOf(id)) primary.resumeSync()
  }

  /**
   * After an unseal, before the cluster serves. Resolves when the role is verified, an interrupted promotion is finished, and a promotion
   * elsewhere that was reported meanwhile has fenced it. Rejects with TamperedRoleError if another program changed the role.
   */
  async unsealed(): Promise<void> {
    await this.#roleCode.admit(this.#innerContext)
    const { promoting } = this.#state.now
    if (promoting !== undefined && this.#roleCode.isUsable)
      await this.#transitions.runExclusive(() => this.#finishPromotion(promoting))
    else await this.#primary?.verifyPendingClaims()
  }

  get refusal(): string | undefined {
    return this.#roleCode.refusal
  }

  get #runningPrimary(): Primary {
    this.#requireMode('primary')
    if (!this.#primary) throw new Refusal('unavailable', 'this primary is starting, try again')
    return this.#primary
  }

  /** Generates a key that tokens can be sealed to; only the newest one opens tokens. */
  async generatePublicKey(): Promise<string> {
    const { publicKey, privateKey } = makeSealingKeys()
    await this.#state.change(() => ({ sealingKey: privateKey }))
    return publicKey
  }

  /** Rejects with a Refusal. */
  async openSealedBundle(token: string): Promise<Bundle> {
    const { sealingKey } = this.#state.now
    if (!sealingKey) {
      throw new Refusal('invalid_request', 'the token is sealed to a public key, but this cluster has generated none')
    }
    return openBundle(token, sealingKey)
  }

  /** Resolves when the data is wiped and the initial sync has started. Nothing changes until the primary has agreed. */
  enableSecondary(bundle: Bundle): Promise<void> {
    return this.#transitions.runExclusive(async () => {
      this.#requireMode('disabled')
      const { transition } = this.#context
      const upstream = upstreamOf(bundle)
      await preflight(upstream, { ...this.#context, times: this.#times, nowMs: this.#nowMs })
      const begun = { ...NO_REPLICATION, mode: 'secondary', setId: bundle.set_id, upstream, isWipeDue: true } as const
      await this.#state.change(() => begun)
      try {
        await transition.toSecondary()
      } catch (error) {
        await this.#state.change(() => NO_REPLICATION)
        throw error
      }
      await this.#context.store.setRole('replica')
      await this.#wipe()
      this.#startSecondary()
    })
  }

  async #wipe(): Promise<void> {
    const { store, transition } = this.#context
    await store.tree.disable()
    await store.wipe()
    await store.beginCopy(store.position())
    await store.tree.enable()
    await this.#state.change(() => ({ isWipeDue: false }))
    await this.#attempt('clearing the caches of the deleted data failed', () => transition.wiped())
  }

  promote({
    primaryClusterAddr,
    force,
  }: {
    readonly primaryClusterAddr: string
    readonly force: boolean
  }): Promise<void> {
    return this.#transitions.runExclusive(async () => {
      this.#requireMode('secondary')
      const { store, transition, logger } = this.#context
      await this.#secondary?.stop()
      const why = notReadyReason(store, this.#state.now, this.#secondary)
      if (why !== undefined && !force) {
        this.#startSecondary()
        throw new Refusal('invalid_request', `${why}: try again later or provide the "force" argument`)
      }
      await transition.beforePrimary().catch((error: unknown) => {
        this.#startSecondary()
        throw error
      })
      if (why !== undefined) logger.warn('promotion forced', { why })
      const announced = this.#secondary?.lastHeartbeat?.epoch ?? 0
      const epoch = 1 + Math.max(store.epoch, Math.min(announced, store.epoch + EPOCH_STEP_MAX))
      await this.#state.change(() => ({ promoting: epoch, primaryClusterAddr }))
      await this.#finishPromotion(epoch)
    })
  }

  async #finishPromotion(epoch: number): Promise<void> {
    await becomePrimary(this.#innerContext, epoch)
    this.#secondary = undefined
    await this.#attempt('opening the secrets core after the promotion failed', () =>
      this.#context.transition.toPrimary(),
    )
    await this.#attempt(PORT_CLOSED, () => this.#startPrimary(true))
  }

  updatePrimary(
    o: { readonly bundle: Bundle } | { readonly addresses: readonly string[] } | { readonly forget: true },
  ): Promise<void> {
    return this.#transitions.runExclusive(async () => {
      this.#requireMode('secondary')
      if ('forget' in o) return this.#replaceUpstream(undefined)
      if ('bundle' in o) {
        if (o.bundle.set_id !== this.#state.now.setId) {
          throw new Refusal(
            'invalid_request',
            'the token is from another replication set: to join it, call secondary/disable and then secondary/enable with this token',
          )
        }
        const upstream = upstreamOf(o.bundle)
        await preflight(upstream, { ...this.#context, times: this.#times, nowMs: this.#nowMs })
        return this.#replaceUpstream(upstream)
      }
      const { upstream, needsToken } = this.#state.now
      if (!upstream || needsToken) {
        throw new Refusal(
          'invalid_request',
          'this cluster has no primary to update with update_primary_addrs: use a token',
        )
      }
      if (this.#secondary?.isRevoked) {
        throw new Refusal(
          'invalid_request',
          'the primary revoked this secondary: use a new token instead of update_primary_addrs',
        )
      }
      const { address } = await firstThatAnswers(upstream, o.addresses, this.#times.answerMs)
      return this.#replaceUpstream({ ...upstream, address, known: [address] })
    })
  }

  async #replaceUpstream(upstream: KnownUpstream | undefined): Promise<void> {
    await this.#secondary?.stop()
    await this.#state.change(() => ({ upstream }))
    this.#secondary = undefined
    this.#startSecondary()
  }

  /** Rebuilds the Merkle tree in the background; the status has the progress. */
  async reindex(o: { readonly diff: boolean; readonly force: boolean; readonly skipFlush: boolean }): Promise<void> {
    if (this.mode === 'disabled') this.#requireMode('secondary')
    if (this.#reindex)
      throw new Refusal('invalid_request', 'a reindex is already running: see reindex_progress in the status')
    this.#reindex = { done: 0, total: 0 }
    const run = async () => {
      const { tree } = this.#context.store
      const onProgress = (done: number, total: number) => (this.#reindex = { done, total })
      await tree.rebuild({ diff: o.diff && !o.force, skipFlush: o.skipFlush }, onProgress)
      await this.#state.change(() => ({ lastReindexMs: this.#nowMs() }))
      await this.#check()
      this.#secondary?.scheduleRepair(true)
    }
    void this.#attempt('the reindex failed', run).finally(() => (this.#reindex = undefined))
  }

  async #check(): Promise<TreeReport> {
    const report = await this.#context.store.tree.check()
    const isTreeCorrupted = isCorrupted(report)
    await this.#state.change(() => ({ lastCheckMs: report.checkedAtMs, isTreeCorrupted }))
    if (isTreeCorrupted) this.#secondary?.scheduleRepair()
    return report
  }

  /** Entries differ from what the primary wrote: a secondary repairs them from it as soon as it is reachable. */
  repair(): void {
    this.#secondary?.scheduleRepair(true)
  }

  async merkleCheck(): Promise<MerkleReport> {
    if (this.mode === 'disabled') this.#requireMode('secondary')
    return merkleReport(await this.#check())
  }

  /** Mode and sync state as in the status, without waiting. */
  get brief(): { readonly mode: string; readonly sync: string } {
    if (this.#secondary && this.mode === 'secondary')
      return secondaryBrief({ context: this.#context, state: this.#state.now }, this.#secondary)
    return this.#primary ? primaryBrief(this.#primary) : { mode: this.mode, sync: 'off' }
  }

  async status(): Promise<DrStatus> {
    if (this.mode === 'disabled') return { mode: 'disabled' }
    const root = await this.#context.store.tree.root().catch(() => Buffer.alloc(0))
    const about = { context: this.#context, state: this.#state.now, root, reindex: this.#reindex }
    if (this.#secondary)
      return { ...secondaryStatus(about, this.#secondary), ...(this.refusal && { trouble: this.refusal }) }
    if (this.#primary) return primaryStatus({ ...about, warnings: this.warnings }, this.#primary)
    return { mode: this.mode, state: 'idle' }
  }

  get metrics(): ReplicationMetrics {
    return replicationMetrics(this.mode, this.#context.store, { primary: this.#primary, secondary: this.#secondary })
  }

  async close(): Promise<void> {
    await this.#transitions.whenIdle()
    // Another cluster may be promoted while this process is down.
    this.#primary?.failWaitingCommits()
    await this.#stopAll()
  }
}
