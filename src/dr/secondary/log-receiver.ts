/** The secondary's end of one `Follow` stream: applies rows, acknowledges each transaction, answers heartbeats. */
import { pauseDetector } from '../../platform/clock.ts'
import { type LogRow, NotChained, type CommitPosition, type ReplicaStore } from '../../storage/store/replica.ts'
import { RowApplier } from './row-applier.ts'
import { type Proofs, type ProofSession, statements } from '../link/proofs.ts'
import { type FollowStream, type LinkClient, LinkError, linkErrorOf } from '../link/link.ts'
import { ChunkAssembler, type ResponseOf } from '../link/messages.ts'
import type { AdvertisedAddresses, LinkTimings } from '../state/replication-context.ts'

export type PrimaryHeartbeat = Extract<ResponseOf<'Follow'>, { kind: 'beat' }>

/** Received rows that are not applied yet. */
const WINDOW_BYTES = 16 << 20

export interface LogReceiverContext {
  readonly link: LinkClient
  readonly store: ReplicaStore
  /** For proofs of acknowledgements; undefined if the primary sent no nonce. */
  readonly session: ProofSession | undefined
  readonly proofs: Proofs
  /** The epoch that this cluster announces. */
  readonly epoch: number
  readonly addresses: AdvertisedAddresses
  readonly bufferBytes: number
  readonly times: LinkTimings
  readonly nowMs: () => number
  /** Called after rows were applied and before they are acknowledged. */
  readonly onApplied: (position: CommitPosition) => Promise<void>
  readonly onHeartbeat: (beat: PrimaryHeartbeat) => void
}

export class LogReceiver {
  readonly #context: LogReceiverContext
  readonly #call: FollowStream
  readonly #applier: RowApplier
  readonly #partialRow = new ChunkAssembler()
  readonly #pauses = pauseDetector()
  #lastMessageMs = performance.now()
  #resolve: (why: string) => void = () => undefined
  #reject: (error: unknown) => void = () => undefined

  constructor(context: LogReceiverContext) {
    this.#context = context
    this.#call = context.link.follow()
    const windowBytes = this.#windowBytes
    this.#applier = new RowApplier(context.store, this.#call, windowBytes, {
      onApplied: async (position) => {
        await context.onApplied(position)
        this.#acknowledge(position)
      },
      onFailure: (error) => this.#fail(error),
    })
  }

  get #windowBytes(): number {
    return Math.min(WINDOW_BYTES, this.#context.bufferBytes)
  }

  /** Received rows that are not applied yet. */
  get waiting(): number {
    return this.#applier.waiting
  }

  /** Applies the received rows, then stops. */
  drain(): Promise<void> {
    return this.#applier.drain()
  }

  /** Resolves to the reason of a log gap; rejects with a LinkError when the connection is lost. */
  async run(signal: AbortSignal): Promise<string> {
    const { times, store, addresses } = this.#context
    const ended = new Promise<string>((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    const onAbort = () => this.#fail(new LinkError('lost', 'this cluster closed the connection'))
    signal.addEventListener('abort', onAbort, { once: true })
    // An abort during the connection attempt fires no event here.
    if (signal.aborted) onAbort()
    const silence = setInterval(() => this.#checkSilence(), times.heartbeatMs)
    this.#call.on('data', (message: ResponseOf<'Follow'>) => this.#receive(message))
    this.#call.on('drain', () => this.#acknowledge(store.position()))
    this.#call.on('error', (error) => this.#fail(error))
    this.#call.on('end', () => this.#fail(new LinkError('lost', 'the primary closed the stream')))
    const from = {
      position: store.position(),
      epoch: this.#context.epoch,
      windowBytes: this.#windowBytes,
      proof: this.#proofToFollow(),
    }
    this.#write({ kind: 'from', ...from, ...addresses })
    try {
      return await ended
    } catch (error) {
      // Diverged history: resolved by a Merkle comparison.
      if (error instanceof NotChained) return error.message
      throw this.#explained(linkErrorOf(error))
    } finally {
      clearInterval(silence)
      signal.removeEventListener('abort', onAbort)
      this.#call.cancel()
      await this.#applier.stop()
    }
  }

  /** A connection that was lost while this process did not run says nothing about the primary. */
  #explained(error: LinkError): LinkError {
    const { pauseText } = this.#pauses
    if (error.reason !== 'lost' || pauseText === undefined) return error
    return new LinkError('lost', `${pauseText}, its connection to the primary was lost`, { cause: error })
  }

  #fail(error: unknown): void {
    this.#reject(error)
  }

  #checkSilence(): void {
    // Heartbeats may be queued behind rows that are not applied yet: the primary gets no answer to them meanwhile.
    if (this.waiting > 0) return this.#acknowledge(this.#context.store.position())
    const silentMs = performance.now() - this.#lastMessageMs
    if (silentMs < this.#context.times.silenceMs) return
    this.#fail(new LinkError('lost', `no message from the primary for ${Math.round(silentMs)} ms`))
  }

  #receive(message: ResponseOf<'Follow'>): void {
    this.#lastMessageMs = performance.now()
    try {
      if (message.kind === 'diverged') this.#resolve(message.why)
      else if (message.kind === 'part') this.#partialRow.add(message.bytes)
      else if (message.kind === 'rows') this.#applier.enqueue(rowsOf(message.rows, this.#partialRow))
      else this.#onHeartbeat(message)
    } catch (error) {
      this.#fail(new LinkError('malformed', 'the primary sent a malformed message', { cause: error }))
    }
  }

  #onHeartbeat(beat: PrimaryHeartbeat): void {
    const { store, nowMs, onHeartbeat } = this.#context
    onHeartbeat(beat)
    this.#write({ kind: 'echo', beat: beat.beat, atMs: nowMs(), ...this.#withProof(store.position()) })
  }

  #acknowledge(position: CommitPosition): void {
    this.#write({ kind: 'ack', ...this.#withProof(position) })
  }

  #proofToFollow(): Uint8Array | undefined {
    const { epoch, proofs, session } = this.#context
    return session && proofs.of(statements.follow(session, epoch))
  }

  #withProof(position: CommitPosition) {
    const { proofs, session, store } = this.#context
    const { isWhole } = store
    const proof = session && proofs.of(statements.acknowledgement(session, position, isWhole))
    return { position, isWhole, proof }
  }

  /** Drops the message while the stream is blocked: the `drain` event acknowledges the current position. */
  #write(message: Parameters<FollowStream['write']>[0]): void {
    if (!this.#call.destroyed && !this.#call.writableNeedDrain) this.#call.write(message)
  }
}

type PackedRow = Extract<ResponseOf<'Follow'>, { kind: 'rows' }>['rows'][number]

function rowsOf(rows: readonly PackedRow[], chunks: ChunkAssembler): LogRow[] {
  return rows.map(([sequence, epoch, atMs, checksum, batch], at) => {
    return { sequence, epoch, atMs, checksum, batch: at === 0 ? chunks.take(batch) : batch }
  })
}
