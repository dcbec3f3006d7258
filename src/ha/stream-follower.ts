/**
 * Keeps the database of a member a state of the commit stream: joins the stream, follows it, and copies the entries of another member when
 * messages that this one lacks were trimmed.
 *
 * Nothing that was committed here is discarded: a database with commits that are not in the stream, as after a time without high
 * availability, is refused with an error that states the remedy.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { NatsConnection } from '@nats-io/transport-node'
import { messageOf, Refusal } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import { TIMINGS } from '../cluster/nats/timings.ts'
import type { LoggedGroup } from '../storage/store/commit-log.ts'
import type { SqliteStore } from '../storage/store/store.ts'
import { NOT_IN_STREAM } from '../storage/store/stream-mark.ts'
import { copyFromMember, pickSource } from './copy/member-copy.ts'
import type { HaBucket } from './lease/lease.ts'
import { type CommitMessage, MessageAssembler, samePosition } from './stream/commit-message.ts'
import type { CommitStream } from './stream/commit-stream.ts'
import { HistoryDiffers, StreamApplier } from './stream/stream-applier.ts'

const RETRY_MS = 500

export interface StreamFollowerOptions {
  readonly store: SqliteStore
  readonly stream: Pick<CommitStream, 'bounds' | 'follow' | 'identity' | 'name' | 'read' | 'readFrom'>
  readonly connection: Pick<NatsConnection, 'requestMany'>
  readonly bucket: Pick<HaBucket, 'members'>
  readonly region: string
  readonly serverId: () => string
  readonly wallMs: () => number
  readonly logger: Logger
  readonly warn: (message: string, error: unknown) => void
}

export class StreamFollower {
  readonly #options: StreamFollowerOptions
  #following: { readonly stop: AbortController; readonly ended: Promise<void> } | undefined
  /** Since when the stream ends before the applied position. */
  #shorterSinceMs: number | undefined
  /** Message of the stream at which a copy of the entries is complete. */
  #copiedAt = 0
  /** The database is a state of the stream, or will be its first one. */
  isJoined = false
  /** Why the database does not follow the stream; undefined while it does. */
  trouble: string | undefined
  /** Sequence of the newest message that is known. */
  received = 0

  constructor(options: StreamFollowerOptions) {
    this.#options = options
  }

  start(): void {
    if (this.#following) return
    const stop = new AbortController()
    this.#following = { stop, ended: this.#run(stop.signal) }
  }

  /** Resolves when applying has ended. */
  async stop(): Promise<void> {
    this.#following?.stop.abort()
    await this.#following?.ended
    this.#following = undefined
  }

  /** Applies all messages up to `last`, while stopped. `retried` repeats a request to NATS that fails. */
  async catchUp(last: number, retried: <T>(request: () => Promise<T>) => Promise<T>): Promise<void> {
    const { store, stream } = this.#options
    const mark = store.member.streamMark
    if (mark?.stream !== stream.identity) throw new HistoryDiffers('this server has not joined the commit stream')
    const applier = new StreamApplier(store, stream.identity)
    for (let next = mark.position + 1; next <= last; ) {
      const messages = await retried(() => collected(stream.readFrom(next)))
      if (messages.length === 0) throw new HistoryDiffers(`message ${next} is not in the commit stream`)
      for (const message of messages) await applier.add({ ...message, pending: last - message.sequence })
      next += messages.length
    }
    await applier.flush()
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { store, warn } = this.#options
    while (!signal.aborted) {
      try {
        this.isJoined = await this.#prepare(signal)
        if (this.isJoined) this.trouble = undefined
        if (store.member.streamMark) await this.#apply(signal)
      } catch (error) {
        if (signal.aborted) return
        if (error instanceof HistoryDiffers) await this.#copyAfter(error, signal)
        else {
          if (error instanceof Refusal || isStoreFailure(error)) this.trouble = messageOf(error)
          warn('following the commit stream failed, retrying', error)
        }
      }
      await sleep(RETRY_MS, undefined, { signal }).catch(() => undefined)
    }
  }

  async #apply(signal: AbortSignal): Promise<void> {
    const { store, stream } = this.#options
    const applier = new StreamApplier(store, stream.identity)
    for await (const message of stream.follow((store.member.streamMark?.position ?? 0) + 1, signal)) {
      this.received = message.sequence + message.pending
      await applier.add(message)
      await this.#finishCopy()
      this.trouble = undefined
    }
    await applier.flush()
  }

  async #finishCopy(): Promise<void> {
    const { store } = this.#options
    if (store.member.isJoining && (store.member.streamMark?.position ?? 0) >= this.#copiedAt)
      await store.member.finishCopy()
  }

  /** Makes the database one that the stream continues. False while this server cannot become active. */
  async #prepare(signal: AbortSignal): Promise<boolean> {
    const { store, stream } = this.#options
    const { first, last } = await stream.bounds()
    const mark = store.member.streamMark
    if (mark?.stream === stream.identity) {
      this.#requireNoOwnCommits(mark.row)
      this.#requireLast(last, mark.position)
      if (store.member.isJoining || mark.position + 1 < first) await this.#copy(signal)
      return true
    }
    // The first active server writes where the stream begins.
    if (last === 0) return store.position().sequence > 0
    const payload = await stream.read(first)
    const message = payload && new MessageAssembler().add(payload)
    if (first === 1 && message?.kind === 'base' && (await this.#joinAt(message))) return true
    this.#requireNoOwnCommits(0)
    await this.#copy(signal)
    return true
  }

  /** True if the stream begins with the state of this database. */
  async #joinAt({ clusterId, position, role }: Extract<CommitMessage, { kind: 'base' }>): Promise<boolean> {
    const { store, stream } = this.#options
    const here = store.position()
    const isEmpty = here.sequence === 0
    if (!isEmpty && store.clusterId !== clusterId) throw otherCluster(store.clusterId, clusterId)
    // A DR secondary of the cluster has the same entries in another role.
    if (!samePosition(here, position) || store.member.roleDigest !== role) return false
    if (isEmpty) {
      const mark = { stream: stream.identity, position: 1 }
      const plain = { role: store.role, epoch: store.epoch, isCopying: false, shared: [] }
      await store.member.beginCopy({ ...plain, position: here, clusterId, mark })
      await store.member.finishCopy()
    } else await store.member.applyLogged([emptyGroup(stream.identity, 1, here.sequence + 1)])
    return true
  }

  /**
   * Throws if the stream ends before the applied position. After a partition, the former leader of the stream returns an older state
   * for some time; only when that does not end, messages are lost, which is a Refusal.
   */
  #requireLast(last: number, applied: number): void {
    if (applied <= last) {
      this.#shorterSinceMs = undefined
      return
    }
    // A takeover would continue the stream before messages that other members have applied.
    this.isJoined = false
    this.#shorterSinceMs ??= performance.now()
    if (performance.now() - this.#shorterSinceMs >= TIMINGS.haStaleMs) throw lostMessages(last, applied)
    throw new Error(`NATS answers with an older state of the commit stream (${last}, applied ${applied})`)
  }

  /** Throws a Refusal if the database has commits after a row that are not in the stream. */
  #requireNoOwnCommits(row: number): void {
    if (row === NOT_IN_STREAM) throw otherRole()
    const own = this.#options.store.position().sequence - row
    if (own > 0) throw ownCommits(own, this.#options.stream.name)
  }

  /** Copies the entries that differ from another member's. */
  async #copy(signal: AbortSignal): Promise<void> {
    const { bucket, connection, logger, region, serverId, store, stream, wallMs } = this.#options
    this.isJoined = false
    const source = pickSource(await bucket.members(), serverId(), wallMs())
    const startedAtMs = performance.now()
    const copied = await copyFromMember({ connection, region, source, store, stream: stream.identity, signal })
    this.#copiedAt = copied.completeAt
    await this.#finishCopy()
    const tookMs = Math.round(performance.now() - startedAtMs)
    const { entries } = copied
    logger.info('entries copied from another member', { member: source.name, entries, took_ms: tookMs })
  }

  async #copyAfter({ message }: HistoryDiffers, signal: AbortSignal): Promise<void> {
    const { logger, warn } = this.#options
    this.trouble = `the entries differ from the commit stream: ${message}`
    logger.error('entries differ from the commit stream, copying them from another member', { error: message })
    try {
      await this.#copy(signal)
      this.trouble = undefined
    } catch (error) {
      warn('copying the entries failed, retrying', error)
    }
  }
}

async function collected<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

/** Moves the mark of a database without a change of entries. */
export function emptyGroup(stream: string, position: number, firstSequence: number): LoggedGroup {
  return { bytes: new ArrayBuffer(0), lengths: [], epoch: 0, mark: { stream, position, firstSequence, atMs: 0 } }
}

const JOIN = 'to join with the entries of the stream, stop this server and move its database away'

function otherCluster(own: string, streams: string): Refusal {
  return new Refusal(
    'conflict',
    `this server has the secrets of cluster ${own}, but the commit stream has those of cluster ${streams}; ${JOIN}`,
  )
}

function ownCommits(count: number, stream: string): Refusal {
  return new Refusal(
    'conflict',
    `this server has ${count} commits that are not in the commit stream, for example because it ran without server.ha, or because the stream was deleted; ${JOIN}; to keep its ` +
      `entries instead, stop all servers, delete the stream ${stream}, and start this server first; see "Delete the stream" in docs/operating/ha.md`,
  )
}

function otherRole(): Refusal {
  return new Refusal('conflict', `the DR replication of this server was changed while server.ha was off; ${JOIN}`)
}

function lostMessages(last: number, applied: number): Refusal {
  return new Refusal(
    'conflict',
    `the commit stream ends at message ${last}, this server has applied ${applied}: NATS lost acknowledged messages. Stop all ` +
      'servers, delete the stream, and start the server with the highest position first; see "NATS lost the stream" in docs/operating/ha.md',
  )
}

function isStoreFailure(error: unknown): boolean {
  return error instanceof Error && error.name === 'StoreError'
}
