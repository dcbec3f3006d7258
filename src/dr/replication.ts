/**
 * The replication room: a second cluster that has everything and can take over.
 *
 * A *primary* listens on the cluster port and ships its log of commits; a *secondary* dials it, applies the rows in order and
 * acknowledges them. Where the log does not reach (a new secondary, a long absence, another history) both compare trees of hashes
 * and only what differs is copied. Rows and entries are ciphertext and stay so: this room imports no key, and a secondary follows
 * while it is sealed.
 *
 * Promises. A secondary's history is a prefix of its primary's: same rows, same checksums. What a secondary has acknowledged is on
 * its disk. With `sync`, a commit that was answered is on every secondary, or the state says `degraded`. At most one primary: each
 * promotion raises the *epoch*; the replaced primary is told (`promotion-notice.ts`) until it acknowledges, and takes no more
 * writes from that moment; it also stops when a peer shows a higher epoch. Both need a proof of membership (`proofs.ts`). What it had committed and never shipped is
 * kept in a file when it joins again (`conflicts.ts`). A transition that was cut short by a crash is finished at the next start, a
 * promotion when the cluster is unsealed: what is to happen is written (`state.ts`) before it happens. The role is authenticated
 * (`role-code.ts`). Data is wiped only after the new primary has been reached and has agreed.
 *
 * Assumes that the daemon closes the barrier before the store becomes a replica and opens it afterwards (`Transition`). Whoever has
 * the key of a secondary's certificate can read all ciphertext. To fence the primary or to acknowledge a commit takes a barrier key.
 *
 * What can go wrong. The link: a secondary dials again, with a growing pause, and its status says why. A partition in which the old
 * primary reaches no peer: it goes on until it is told, or until `fence_after` has passed without a word from any secondary. A peer with
 * a valid certificate that is hostile: everything it sends is parsed and bounded, and it can acknowledge only what it was sent.
 */
import { randomUUID } from 'node:crypto'
import { messageOf, Refusal } from '../platform/errors.ts'
import type { TreeReport } from '../storage/store/replica.ts'
import { type Bundle, makeSealingKeys, openBundle, upstreamOf } from './link/bundle.ts'
import { clusterAddressWarnings } from './state/cluster-address.ts'
import { beginDemotion } from './primary/demotion.ts'
import { type FenceState, fenceStateOf } from './primary/fence-state.ts'
import { type ReplicationFigures, replicationFigures } from './dr-metrics.ts'
import { Fencing } from './primary/fencing.ts'
import { FenceNotice } from './secondary/promotion-notice.ts'
import { Proofs } from './link/proofs.ts'
import { type LinkTimings, type ReplicationParts, TIMINGS } from './state/parts.ts'
import { EPOCH_STEP_MAX } from './link/epoch.ts'
import { preflight } from './secondary/preflight.ts'
import { becomePrimary, whyNotReady } from './secondary/promotion.ts'
import { Primary } from './primary/primary.ts'
import { RoleCode } from './state/role-code.ts'
import { firstThatAnswers, Secondary } from './secondary/secondary.ts'
import { type KnownUpstream, NO_LONGER_PRIMARY, NO_REPLICATION, ReplicationState, type State } from './state/state.ts'
import { isCorrupted, type MerkleReport, merkleReport } from './tree/merkle-report.ts'
import {
  type DrStatus,
  primaryBrief,
  primaryStatus,
  type ReindexProgress,
  secondaryBrief,
  secondaryStatus,
} from './status.ts'

export { type Bundle, isSealedBundle, parseBundle } from './link/bundle.ts'
export type { LinkTimings, MembershipKey, ReplicationParts, ReplicationSettings, Transition } from './state/parts.ts'
export type { ReplicationFigures } from './dr-metrics.ts'
export type { MerkleReport } from './tree/merkle-report.ts'
export type { DrStatus } from './status.ts'

export type DrMode = State['mode']

export class Replication {
  readonly #parts: ReplicationParts
  readonly #state: ReplicationState
  readonly #roleCode: RoleCode
  readonly #times: LinkTimings
  readonly #nowMs: () => number
  readonly #proofs: Proofs
  readonly #fencing: Fencing
  readonly #notice: FenceNotice
  #primary: Primary | undefined
  #secondary: Secondary | undefined
  /** One transition behind the other. */
  #turn: Promise<unknown> = Promise.resolve()
  #reindex: ReindexProgress | undefined

  /** Reads the state and goes on in its mode: a primary listens, a secondary dials. Rejects with a Fault for the operator. */
  static async open(parts: ReplicationParts): Promise<Replication> {
    const replication = new Replication(parts)
    await replication.#resume()
    return replication
  }

  private constructor(parts: ReplicationParts) {
    this.#parts = parts
    this.#roleCode = new RoleCode(parts.membership)
    this.#state = new ReplicationState(parts.store, (next, now) => this.#roleCode.codeFor(next, now))
    this.#times = { ...TIMINGS, ...parts.timings }
    this.#nowMs = parts.now ?? Date.now
    const set = () => ({ setId: this.#state.now.setId, clusterId: parts.store.clusterId })
    this.#proofs = new Proofs(this.#roleCode.key, set)
    const inner = { ...parts, state: this.#state, proofs: this.#proofs, times: this.#times }
    this.#fencing = new Fencing({ ...inner, primary: () => this.#primary })
    this.#notice = new FenceNotice({
      ...inner,
      onEpoch: (epoch) => this.#fencing.riseAbove(epoch),
      onRival: (rival) => this.#fencing.yieldIfDue(rival),
    })
  }

  get mode(): DrMode {
    return this.#state.now.mode
  }

  /** Of the cluster port while it is open. */
  get listening(): { readonly host: string; readonly port: number } | undefined {
    return this.#primary?.address
  }

  /** Where the primary is, for who asks a secondary: its API, or its cluster address; empty when it is not known. */
  get primaryAddress(): string {
    const { upstream, deposed } = this.#state.now
    if (deposed) return deposed.api || (deposed.addresses[0] ?? '')
    return this.#secondary?.lastBeat?.api || upstream?.api || upstream?.address || ''
  }

  /** Why this primary takes no writes; undefined while it does. Asked for each request. */
  get fence(): FenceState | undefined {
    return fenceStateOf({ parts: this.#parts, state: this.#state.now }, this.#primary)
  }

  /** Address of the replaced primary that has not acknowledged the notice yet. */
  get owes(): string | undefined {
    return this.#state.now.notice?.upstream.address
  }

  /** What keeps secondaries on other hosts from this primary. */
  get warnings(): readonly string[] {
    if (this.mode !== 'primary') return []
    const { addresses, listenAddress } = this.#parts
    const { primaryClusterAddr: given } = this.#state.now
    return clusterAddressWarnings(given || addresses().cluster, given, listenAddress.host)
  }

  async #resume(): Promise<void> {
    const { store } = this.#parts
    await this.#roleCode.admit(this.#inner).catch(() => undefined)
    const { promoting } = this.#state.now
    if (promoting !== undefined) {
      // Verified and finished when this cluster is unsealed; until then it neither follows nor serves.
      if (!this.#roleCode.isUsable) return void (this.#secondary = new Secondary(this.#inner))
      await becomePrimary(this.#inner, promoting)
    }
    const { authority, mode, deposed, isWipeDue } = this.#state.now
    if (mode === 'disabled') {
      if (store.role !== 'own') await store.setRole('own')
      return
    }
    if (mode === 'secondary') {
      if (store.role !== 'replica') await store.setRole('replica')
      // Of a primary, whose demotion was cut short.
      if (authority || deposed) await this.#state.change(() => NO_LONGER_PRIMARY)
      if (isWipeDue) await this.#wipe()
      await this.#resumeTree()
      return this.#startSecondary()
    }
    await this.#fencing.finishLift()
    if (deposed && store.role !== 'fenced') await store.setRole('fenced', deposed.epoch)
    if (!deposed && store.role === 'replica') await store.setRole('own')
    await this.#resumeTree()
    await this.#startPrimary(false)
    await this.#fencing.askSecondaries()
  }

  /** A tree that has to be made anew reads all entries: a start waits for none of them, and one that cannot be read keeps nothing from starting. */
  #resumeTree(): Promise<void> {
    const { store, logger } = this.#parts
    return store.tree.resume((error) =>
      logger.error('the tree of hashes could not be made: no trees are compared until a reindex has made it', {
        error: messageOf(error),
      }),
    )
  }

  get #inner() {
    return { ...this.#parts, state: this.#state, proofs: this.#proofs, times: this.#times, nowMs: this.#nowMs }
  }

  async #startPrimary(mayMake: boolean): Promise<void> {
    this.#primary = new Primary({ ...this.#inner, onDeposed: (by) => this.#fencing.depose(by) })
    this.#fencing.start()
    this.#notice.start()
    await this.#primary.start({ mayMake })
  }

  #startSecondary(): void {
    this.#secondary ??= new Secondary(this.#inner)
    this.#secondary.start()
  }

  #exclusively<T>(transition: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(transition)
    this.#turn = turn.catch(() => undefined)
    return turn
  }

  #require(mode: DrMode): void {
    if (this.mode === mode) return
    const wanted = {
      disabled: 'DR replication is enabled already',
      primary: 'Not a DR primary.',
      secondary: 'Not a DR secondary.',
    }
    throw new Refusal('invalid_request', `${wanted[mode]} The mode of this cluster is "${this.mode}".`)
  }

  enablePrimary({ primaryClusterAddr }: { readonly primaryClusterAddr: string }): Promise<void> {
    return this.#exclusively(async () => {
      this.#require('disabled')
      await this.#parts.store.tree.enable()
      const setId = randomUUID()
      await this.#state.change(() => ({ ...NO_REPLICATION, mode: 'primary', setId, primaryClusterAddr }))
      try {
        await this.#startPrimary(true)
      } catch (error) {
        await this.#stopAll()
        await this.#state.change(() => NO_REPLICATION)
        await this.#parts.store.tree.disable()
        throw error
      }
    })
  }

  /** `secondaryId`: refused, and nothing has changed, unless this secondary has everything. */
  demote({ secondaryId = '' }: { readonly secondaryId?: string } = {}): Promise<void> {
    return this.#exclusively(async () => {
      this.#require('primary')
      const { store } = this.#parts
      await beginDemotion(this.#inner, this.#primary, secondaryId)
      await this.#stopAll()
      await store.setRole('replica')
      await this.#state.change(() => ({ ...NO_LONGER_PRIMARY, provenEpoch: store.epoch }))
      this.#startSecondary()
    })
  }

  disable(): Promise<void> {
    return this.#exclusively(async () => {
      if (this.mode === 'disabled') this.#require('primary')
      const { store, transition } = this.#parts
      const wasSecondary = this.mode === 'secondary'
      await this.#stopAll()
      await this.#state.change(() => NO_REPLICATION)
      // What is here goes on as a history of its own.
      if (store.role !== 'own') await store.setRole('own', store.epoch + 1)
      if (!store.isWhole) await store.finishCopy()
      await store.tree.disable()
      if (wasSecondary) await this.#told('the core could not be opened', () => transition.toPrimary())
    })
  }

  async #told(what: string, tell: () => Promise<void>): Promise<void> {
    try {
      await tell()
    } catch (error) {
      this.#parts.logger.error(what, { error: messageOf(error) })
    }
  }

  async #stopAll(): Promise<void> {
    await this.#fencing.stop()
    await this.#notice.stop()
    await this.#secondary?.stop()
    await this.#primary?.stop()
    this.#primary = this.#secondary = undefined
  }

  /** `publicKey`: seals the bundle to it; otherwise the caller wraps it. */
  async issueSecondary(o: {
    readonly id: string
    readonly ttlMs: number
    readonly publicKey?: string | undefined
  }): Promise<{ readonly bundle: Bundle } | { readonly sealed: string }> {
    const issued = await this.#rulingPrimary.issue(o)
    return typeof issued === 'string' ? { sealed: issued } : { bundle: issued }
  }

  /** Where the proof of this secondary has fenced this primary, it takes writes again. */
  async revokeSecondary(id: string): Promise<void> {
    const primary = this.#rulingPrimary
    const hasFenced = this.#fencing.provenBy === id
    // A crash may have come between the two halves: the ID is known no more, and the fence stands.
    if (!hasFenced || this.#state.now.secondaries.some((one) => one.id === id)) await primary.revoke(id)
    if (await this.#fencing.liftFenceOf(id)) primary.resumeSync()
  }

  /**
   * This cluster was unsealed and serves nothing yet. Resolves when its role was verified, a promotion that a crash cut short is finished,
   * and a promotion elsewhere that it was told of meanwhile has fenced it. Rejects with RoleChanged where another program changed the role.
   */
  async unsealed(): Promise<void> {
    await this.#roleCode.admit(this.#inner)
    const { promoting } = this.#state.now
    if (promoting !== undefined && this.#roleCode.isUsable)
      await this.#exclusively(() => this.#finishPromotion(promoting))
    else await this.#primary?.settleClaims()
  }

  /** Why the server stays sealed: another program changed the role. */
  get refusal(): string | undefined {
    return this.#roleCode.refusal
  }

  get #rulingPrimary(): Primary {
    this.#require('primary')
    if (!this.#primary) throw new Refusal('unavailable', 'this primary has not begun yet, try again')
    return this.#primary
  }

  /** Makes a key that a token can be sealed to; only the newest one opens tokens. */
  async generatePublicKey(): Promise<string> {
    const { publicKey, privateKey } = makeSealingKeys()
    await this.#state.change(() => ({ sealingKey: privateKey }))
    return publicKey
  }

  /** Rejects with a Refusal for a token that the newest public key does not open. */
  async openSealedBundle(token: string): Promise<Bundle> {
    const { sealingKey } = this.#state.now
    if (!sealingKey) {
      throw new Refusal('invalid_request', 'the token is sealed to a public key, and this cluster has made none')
    }
    return openBundle(token, sealingKey)
  }

  /** Resolves when the data is wiped and the first copy has begun. Until the primary has agreed nothing changes. */
  enableSecondary(bundle: Bundle): Promise<void> {
    return this.#exclusively(async () => {
      this.#require('disabled')
      const { transition } = this.#parts
      const upstream = upstreamOf(bundle)
      await preflight(upstream, { ...this.#parts, times: this.#times, nowMs: this.#nowMs })
      const begun = { ...NO_REPLICATION, mode: 'secondary', setId: bundle.set_id, upstream, isWipeDue: true } as const
      await this.#state.change(() => begun)
      try {
        await transition.toSecondary()
      } catch (error) {
        await this.#state.change(() => NO_REPLICATION)
        throw error
      }
      await this.#parts.store.setRole('replica')
      await this.#wipe()
      this.#startSecondary()
    })
  }

  async #wipe(): Promise<void> {
    const { store, transition } = this.#parts
    await store.tree.disable()
    await store.wipe()
    await store.beginCopy(store.position())
    await store.tree.enable()
    await this.#state.change(() => ({ isWipeDue: false }))
    await this.#told('what was remembered could not be forgotten', () => transition.wiped())
  }

  promote({
    primaryClusterAddr,
    force,
  }: {
    readonly primaryClusterAddr: string
    readonly force: boolean
  }): Promise<void> {
    return this.#exclusively(async () => {
      this.#require('secondary')
      const { store, transition, logger } = this.#parts
      await this.#secondary?.stop()
      const why = whyNotReady(store, this.#state.now, this.#secondary)
      if (why !== undefined && !force) {
        this.#startSecondary()
        throw new Refusal('invalid_request', `${why}: try again later or provide the "force" argument`)
      }
      await transition.beforePrimary().catch((error: unknown) => {
        this.#startSecondary()
        throw error
      })
      if (why !== undefined) logger.warn('this cluster is promoted by force', { why })
      const told = this.#secondary?.lastBeat?.epoch ?? 0
      const seen = Math.max(store.epoch, Math.min(told, store.epoch + EPOCH_STEP_MAX))
      await this.#state.change(() => ({ promoting: seen + 1, primaryClusterAddr }))
      await this.#finishPromotion(seen + 1)
    })
  }

  async #finishPromotion(epoch: number): Promise<void> {
    await becomePrimary(this.#inner, epoch)
    this.#secondary = undefined
    await this.#told('the core of the promoted cluster is sealed', () => this.#parts.transition.toPrimary())
    await this.#told('the cluster port is opened with the first token of a secondary', () => this.#startPrimary(true))
  }

  updatePrimary(
    o: { readonly bundle: Bundle } | { readonly addresses: readonly string[] } | { readonly forget: true },
  ): Promise<void> {
    return this.#exclusively(async () => {
      this.#require('secondary')
      if ('forget' in o) return this.#replaceUpstream(undefined)
      if ('bundle' in o) {
        if (o.bundle.set_id !== this.#state.now.setId) {
          throw new Refusal(
            'invalid_request',
            'the token is of another replication set: this needs a new activation, secondary/disable and then secondary/enable',
          )
        }
        const upstream = upstreamOf(o.bundle)
        await preflight(upstream, { ...this.#parts, times: this.#times, nowMs: this.#nowMs })
        return this.#replaceUpstream(upstream)
      }
      const { upstream, needsToken } = this.#state.now
      if (!upstream || needsToken) {
        throw new Refusal(
          'invalid_request',
          'this cluster knows no primary: update_primary_addrs needs one, give a token',
        )
      }
      if (this.#secondary?.isRevoked) {
        throw new Refusal(
          'invalid_request',
          'the primary has revoked this secondary: update_primary_addrs does not help, give a token',
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

  /** Makes the tree anew, in the background; how far it is, is in the status. */
  async reindex(o: { readonly diff: boolean; readonly force: boolean; readonly skipFlush: boolean }): Promise<void> {
    if (this.mode === 'disabled') this.#require('secondary')
    if (this.#reindex)
      throw new Refusal('invalid_request', 'a reindex is running already: see reindex_progress of the status')
    this.#reindex = { done: 0, total: 0 }
    const run = async () => {
      const { tree } = this.#parts.store
      const onProgress = (done: number, total: number) => (this.#reindex = { done, total })
      await tree.rebuild({ diff: o.diff && !o.force, skipFlush: o.skipFlush }, onProgress)
      await this.#state.change(() => ({ lastReindexMs: this.#nowMs() }))
      await this.#check()
      this.#secondary?.repairSoon(true)
    }
    void this.#told('the reindex failed', run).finally(() => (this.#reindex = undefined))
  }

  async #check(): Promise<TreeReport> {
    const report = await this.#parts.store.tree.check()
    const isTreeCorrupted = isCorrupted(report)
    await this.#state.change(() => ({ lastCheckMs: report.checkedAtMs, isTreeCorrupted }))
    if (isTreeCorrupted) this.#secondary?.repairSoon()
    return report
  }

  /** Entries are not what the primary wrote: a secondary takes them from it as soon as it is reachable. */
  repair(): void {
    this.#secondary?.repairSoon(true)
  }

  async merkleCheck(): Promise<MerkleReport> {
    if (this.mode === 'disabled') this.#require('secondary')
    return merkleReport(await this.#check())
  }

  /** Mode and state of `sync` as the status says them, known at once. */
  get brief(): { readonly mode: string; readonly sync: string } {
    if (this.#secondary && this.mode === 'secondary')
      return secondaryBrief({ parts: this.#parts, state: this.#state.now }, this.#secondary)
    return this.#primary ? primaryBrief(this.#primary) : { mode: this.mode, sync: 'off' }
  }

  async status(): Promise<DrStatus> {
    if (this.mode === 'disabled') return { mode: 'disabled' }
    // While the tree is being made there is none yet, and everything else can be told.
    const root = await this.#parts.store.tree.root().catch(() => Buffer.alloc(0))
    const about = { parts: this.#parts, state: this.#state.now, root, reindex: this.#reindex }
    if (this.#secondary)
      return { ...secondaryStatus(about, this.#secondary), ...(this.refusal && { trouble: this.refusal }) }
    if (this.#primary) return primaryStatus({ ...about, warnings: this.warnings }, this.#primary)
    return { mode: this.mode, state: 'idle' }
  }

  get figures(): ReplicationFigures {
    return replicationFigures(this.mode, this.#parts.store, { primary: this.#primary, secondary: this.#secondary })
  }

  async close(): Promise<void> {
    await this.#turn
    // Another cluster may be promoted while this process is away.
    this.#primary?.giveUp()
    await this.#stopAll()
  }
}
