/**
 * The lease of the active server: one entry of a JetStream key-value bucket, changed by compare-and-set on its revision.
 *
 * The holder renews it. It is valid for `leaseMs` from the moment at which the last successful renewal was *sent*, by the holder's
 * monotonic clock. Another server may acquire it once it has not seen a new revision for `leaseMs` and a margin, by its own monotonic
 * clock, since it *saw* the last one, or at once when the holder has released it. Since compare-and-set succeeds for one of them only,
 * and a renewal is seen after it was sent, two servers never have a valid lease at the same time. The margin covers clocks that run at
 * different rates.
 *
 * The revision of an acquisition is the *term*, which increases with each active server.
 *
 * What can go wrong. NATS does not respond: the lease runs out, and is renewed as soon as NATS responds again, unless another server has
 * acquired it. A paused process: its lease has run out when it continues, so it must compare the clock after each read.
 */
import { Kvm, type KV } from '@nats-io/kv'
import { jetstream, jetstreamManager, type JetStreamManager } from '@nats-io/jetstream'
import type { NatsConnection } from '@nats-io/transport-node'
import * as v from 'valibot'
import { HaSubjects } from '../../cluster/nats/ha-subjects.ts'
import { TIMINGS } from '../../cluster/nats/timings.ts'
import { tryParseRecord } from '../../platform/stored-record.ts'

const ACTIVE_KEY = 'active'
const MEMBER_PREFIX = 'member.'
/** Of a core's clock (`secrets/core-clock.ts`). */
const CLOCK_RATE_MAX = 1.1
const text = v.pipe(v.string(), v.maxLength(512))
const count = v.pipe(v.number(), v.integer(), v.minValue(0))

const HOLDER = v.object({
  /** ID of the run of the server. */
  serverId: text,
  name: text,
  apiAddress: text,
  clusterAddress: text,
  activeSinceMs: count,
  leaseMs: v.pipe(count, v.maxValue(600_000)),
  /** Revision of the acquisition; 0 in the acquisition itself. */
  term: count,
  /** True after the server has released it. */
  isReleased: v.boolean(),
  /** Time of the core's clock when this was sent, or a later one: the clock of the next active server starts after it. */
  clockMs: v.optional(count, 0),
})
export type LeaseHolder = v.InferOutput<typeof HOLDER>

const MEMBER = v.object({
  name: text,
  serverId: text,
  apiAddress: text,
  clusterAddress: text,
  version: text,
  state: v.picklist(['active', 'standby', 'sealed', 'uninitialized']),
  /** Sequence of the newest row of the replication log. */
  row: count,
  /** Sequence of the newest applied message of the commit stream. */
  applied: count,
  atMs: count,
  /** Time of the newest complete snapshot that the member knows; 0: never. Absent in reports of earlier versions. */
  snapshotAtMs: v.optional(count, 0),
})
export type MemberState = v.InferOutput<typeof MEMBER>

/** A member that has not reported for this time is lost. */
export const MEMBER_LOST_MS = 5 * TIMINGS.haReportMs

export function isReporting({ atMs }: Pick<MemberState, 'atMs'>, nowMs: number): boolean {
  return nowMs - atMs <= MEMBER_LOST_MS
}

/** The bucket with the lease and the state of each member. Its methods reject with errors of NATS. */
export class HaBucket {
  readonly #kv: KV
  readonly #manager: JetStreamManager
  readonly #subjects: HaSubjects

  static async open(connection: NatsConnection, region: string, replicas: number): Promise<HaBucket> {
    const options = { timeout: TIMINGS.haRequestMs }
    const subjects = new HaSubjects(region)
    const manager = await jetstreamManager(connection, options)
    // Reads come from the leader of the bucket: a follower may have an older revision.
    const kv = await new Kvm(jetstream(connection, options)).create(subjects.bucket, {
      replicas,
      history: 1,
      allow_direct: false,
    })
    return new HaBucket(kv, manager, subjects)
  }

  private constructor(kv: KV, manager: JetStreamManager, subjects: HaSubjects) {
    this.#kv = kv
    this.#manager = manager
    this.#subjects = subjects
  }

  get streamName(): string {
    return this.#subjects.bucketStream
  }

  async readHolder(): Promise<{ readonly holder: LeaseHolder | undefined; readonly revision: number }> {
    const entry = await this.#kv.get(ACTIVE_KEY)
    if (!entry) return { holder: undefined, revision: 0 }
    return { holder: tryParseRecord(HOLDER, entry.string()), revision: entry.revision }
  }

  /** Resolves to the new revision. Rejects when the entry has another revision than `revision`. */
  writeHolder(holder: LeaseHolder, revision: number): Promise<number> {
    const json = JSON.stringify(holder)
    return revision === 0
      ? this.#kv.create(ACTIVE_KEY, json)
      : this.#kv.update(ACTIVE_KEY, json, revision, TIMINGS.haRequestMs)
  }

  async writeMember(member: MemberState): Promise<void> {
    await this.#kv.put(`${MEMBER_PREFIX}${keyOf(member.name)}`, JSON.stringify(member))
  }

  async members(): Promise<MemberState[]> {
    // The names of the subjects, because a listing of keys needs a consumer.
    const prefix = this.#subjects.bucketPrefix
    const { state } = await this.#manager.streams.info(this.streamName, {
      subjects_filter: `${prefix}${MEMBER_PREFIX}>`,
    })
    const names = Object.keys(state.subjects ?? {}).map((subject) => subject.slice(prefix.length))
    const entries = await Promise.all(names.map((name) => this.#kv.get(name)))
    return entries.flatMap((entry) => (entry && tryParseRecord(MEMBER, entry.string())) ?? [])
  }

  async removeMember(name: string): Promise<void> {
    await this.#kv.purge(`${MEMBER_PREFIX}${keyOf(name)}`)
  }
}

/** Names of servers may have characters that keys must not have. */
function keyOf(name: string): string {
  return Buffer.from(name).toString('hex')
}

export interface LeaseOptions {
  readonly bucket: Pick<HaBucket, 'readHolder' | 'writeHolder'>
  /** The entry of this server. */
  readonly self: () => Pick<LeaseHolder, 'serverId' | 'name' | 'apiAddress' | 'clusterAddress'>
  /** Monotonic clock in milliseconds. */
  readonly nowMs: () => number
  readonly wallMs: () => number
  /** The core's clock of this server, which runs at most a tenth faster than the monotonic clock. */
  readonly coreMs: () => number
}

/** The lease as this server knows it. */
export class ActiveLease {
  readonly #options: LeaseOptions
  #holder: LeaseHolder | undefined
  #revision = -1
  #seenAtMs = 0
  /** A change of the entry was seen, so `#seenAtMs` is when a server was active, and not when this one has read the entry first. */
  #hasSeenChange = false
  /** How long no server may have been active before this one; undefined if that is not known. */
  idleMs: number | undefined
  /** While this server holds it. */
  #validUntilMs = Number.NEGATIVE_INFINITY
  #term = 0

  constructor(options: LeaseOptions) {
    this.#options = options
  }

  /** The holder that was seen last, this server included. */
  get holder(): LeaseHolder | undefined {
    return this.#holder?.isReleased ? undefined : this.#holder
  }

  /** Whether this server has seen a renewal of another holder in time. */
  get isHolderAlive(): boolean {
    const holder = this.holder
    return holder !== undefined && this.#options.nowMs() - this.#seenAtMs < holder.leaseMs + TIMINGS.haLeaseMarginMs
  }

  /** The term of this server; 0 while it does not hold the lease. */
  get term(): number {
    return this.#term
  }

  /** True while no other server can be active. To be read after the state that it protects. */
  get isValid(): boolean {
    return this.#term > 0 && this.#options.nowMs() < this.#validUntilMs
  }

  /** Whether this server may acquire the lease, which must have been free for `waitMs`. */
  mayAcquire(waitMs: number): boolean {
    if (this.#term > 0 || this.#revision < 0) return false
    const seenForMs = this.#options.nowMs() - this.#seenAtMs
    const isFree = !this.#holder || this.#holder.isReleased
    return seenForMs >= waitMs + (isFree ? 0 : (this.#holder?.leaseMs ?? 0) + TIMINGS.haLeaseMarginMs)
  }

  /** Reads the entry. True if it has changed. Rejects with errors of NATS. */
  async poll(): Promise<boolean> {
    const { holder, revision } = await this.#options.bucket.readHolder()
    // A response that was read before an acquisition or a renewal of this server.
    if (revision <= this.#revision) return false
    this.#see(holder, revision)
    return true
  }

  #see(holder: LeaseHolder | undefined, revision: number): void {
    this.#hasSeenChange ||= this.#revision >= 0
    this.#holder = holder
    this.#revision = revision
    this.#seenAtMs = this.#options.nowMs()
    if (holder?.serverId !== this.#options.self().serverId || holder.isReleased) this.#drop()
  }

  #drop(): void {
    this.#term = 0
    this.#validUntilMs = Number.NEGATIVE_INFINITY
  }

  /** Resolves to true when this server holds the lease. Another server may have been faster. */
  async acquire(): Promise<boolean> {
    const { nowMs, wallMs } = this.#options
    const sentAtMs = nowMs()
    const leaseMs = TIMINGS.haLeaseMs
    const idleMs = this.#hasSeenChange ? sentAtMs - this.#seenAtMs : undefined
    const clockMs = lastClockMs(this.#holder)
    const holder = { ...this.#options.self(), activeSinceMs: wallMs(), leaseMs, term: 0, isReleased: false, clockMs }
    try {
      const revision = await this.#options.bucket.writeHolder(holder, this.#revision)
      this.#holder = { ...holder, term: revision }
      this.#revision = this.#term = revision
      this.#validUntilMs = sentAtMs + leaseMs
      this.idleMs = idleMs
      return true
    } catch {
      return false
    }
  }

  /** Renews the lease. False when another server holds it now. Rejects with errors of NATS. */
  async renew(): Promise<boolean> {
    const term = this.#term
    const holder = this.#holder
    if (term === 0 || !holder) return false
    const sentAtMs = this.#options.nowMs()
    try {
      const renewed = { ...holder, term, clockMs: this.#clockMs(holder) }
      const revision = await this.#options.bucket.writeHolder(renewed, this.#revision)
      if (this.#term !== term) return false
      this.#holder = renewed
      this.#revision = revision
      this.#seenAtMs = sentAtMs
      this.#validUntilMs = sentAtMs + holder.leaseMs
      return true
    } catch (error) {
      // The acknowledgement of an earlier renewal may be lost.
      const { holder: stored, revision } = await this.#options.bucket.readHolder()
      if (this.#term !== term) return false
      if (stored?.serverId === holder.serverId && stored.term === term && !stored.isReleased) {
        // This renewal was not stored, and the cause may last: report it.
        if (revision === this.#revision) throw error
        this.#revision = revision
        return await this.renew()
      }
      // The acquisition itself, before its first renewal.
      if (revision === term) throw error
      this.#see(stored, revision)
      return false
    }
  }

  /** Releases the lease, so that another server can be active at once. Rejects with errors of NATS; the lease then expires. */
  async release(): Promise<void> {
    const holder = this.#holder
    if (this.#term === 0 || !holder) return
    this.#drop()
    const released = { ...holder, isReleased: true, clockMs: this.#clockMs(holder) }
    const revision = await this.#options.bucket.writeHolder(released, this.#revision)
    this.#see(released, revision)
  }

  /** Gives up the lease without releasing it: no server can acquire it before it expires. */
  abandon(): void {
    if (this.#term > 0) this.#seenAtMs = this.#options.nowMs()
    this.#drop()
  }

  #clockMs({ clockMs }: LeaseHolder): number {
    return Math.max(clockMs, Math.floor(this.#options.coreMs()))
  }
}

/** The core's clock of this holder does not pass this time while its lease is valid. */
function lastClockMs(holder: LeaseHolder | undefined): number {
  if (!holder) return 0
  return holder.isReleased ? holder.clockMs : holder.clockMs + Math.ceil(holder.leaseMs * CLOCK_RATE_MAX)
}
