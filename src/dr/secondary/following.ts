/** A secondary's end of one stream `Follow`: rows are applied, each transaction is acknowledged, heartbeats are answered. */
import type { LogRow, CommitPosition, ReplicaStore } from '../../storage/store/replica.ts'
import { NotChained } from '../../storage/store/replica.ts'
import { Applier } from './applier.ts'
import { type Proofs, type Session, statements } from '../link/proofs.ts'
import { type FollowStream, type LinkClient, LinkError, linkErrorOf } from '../link/link.ts'
import { Parts, type ResponseOf } from '../link/messages.ts'
import type { Addresses, LinkTimings } from '../state/parts.ts'

export type Beat = Extract<ResponseOf<'Follow'>, { kind: 'beat' }>

/** What arrived and was not applied may take so much memory. */
const WINDOW_BYTES = 16 << 20

export interface FollowingParts {
  readonly link: LinkClient
  readonly store: ReplicaStore
  /** For proofs of what is acknowledged; undefined where the primary gave no nonce. */
  readonly session: Session | undefined
  readonly proofs: Proofs
  /** That this cluster claims to have seen. */
  readonly epoch: number
  readonly addresses: Addresses
  readonly bufferBytes: number
  readonly times: LinkTimings
  readonly nowMs: () => number
  /** Rows were applied: before they are acknowledged. */
  readonly onApplied: (position: CommitPosition) => Promise<void>
  readonly onBeat: (beat: Beat) => void
}

export class Following {
  readonly #parts: FollowingParts
  readonly #call: FollowStream
  readonly #applier: Applier
  readonly #rowsInParts = new Parts()
  #heardMs = performance.now()
  #resolve: (why: string) => void = () => undefined
  #reject: (error: unknown) => void = () => undefined

  constructor(parts: FollowingParts) {
    this.#parts = parts
    this.#call = parts.link.follow()
    const windowBytes = this.#windowBytes
    this.#applier = new Applier(parts.store, this.#call, windowBytes, {
      onApplied: async (position) => {
        await parts.onApplied(position)
        this.#acknowledge(position)
      },
      onFailure: (error) => this.#fail(error),
    })
  }

  get #windowBytes(): number {
    return Math.min(WINDOW_BYTES, this.#parts.bufferBytes)
  }

  /** Rows that have arrived and were not applied. */
  get waiting(): number {
    return this.#applier.waiting
  }

  /** Applies what has arrived, then nothing more. */
  drain(): Promise<void> {
    return this.#applier.drain()
  }

  /** Resolves with why the log of the primary does not go on here; rejects with a LinkError when the connection is lost. */
  async run(signal: AbortSignal): Promise<string> {
    const { times, store, addresses } = this.#parts
    const over = new Promise<string>((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    const onAbort = () => this.#fail(new LinkError('lost', 'this end has closed the link'))
    signal.addEventListener('abort', onAbort, { once: true })
    // It was aborted while the link was dialled: the event does not come again.
    if (signal.aborted) onAbort()
    const silence = setInterval(() => this.#lookForSilence(), times.beatMs)
    this.#call.on('data', (message: ResponseOf<'Follow'>) => this.#take(message))
    this.#call.on('drain', () => this.#acknowledge(store.position()))
    this.#call.on('error', (error) => this.#fail(error))
    this.#call.on('end', () => this.#fail(new LinkError('lost', 'the primary has ended the stream')))
    const from = {
      position: store.position(),
      epoch: this.#parts.epoch,
      windowBytes: this.#windowBytes,
      proof: this.#proofToFollow(),
    }
    this.#write({ kind: 'from', ...from, ...addresses })
    try {
      return await over
    } catch (error) {
      // Another history than ours, which a comparison of trees puts right.
      if (error instanceof NotChained) return error.message
      throw linkErrorOf(error)
    } finally {
      clearInterval(silence)
      signal.removeEventListener('abort', onAbort)
      this.#call.cancel()
      await this.#applier.stop()
    }
  }

  #fail(error: unknown): void {
    this.#reject(error)
  }

  #lookForSilence(): void {
    const silentMs = performance.now() - this.#heardMs
    // What it says may wait behind rows that are not applied yet.
    if (silentMs < this.#parts.times.silenceMs || this.waiting > 0) return
    this.#fail(new LinkError('lost', `the primary was silent for ${Math.round(silentMs)} ms`))
  }

  #take(message: ResponseOf<'Follow'>): void {
    this.#heardMs = performance.now()
    try {
      if (message.kind === 'diverged') this.#resolve(message.why)
      else if (message.kind === 'part') this.#rowsInParts.add(message.bytes)
      else if (message.kind === 'rows') this.#applier.take(rowsOf(message.rows, this.#rowsInParts))
      else this.#onBeat(message)
    } catch (error) {
      this.#fail(new LinkError('malformed', 'the primary has sent what makes no sense', { cause: error }))
    }
  }

  #onBeat(beat: Beat): void {
    const { store, nowMs, onBeat } = this.#parts
    onBeat(beat)
    this.#write({ kind: 'echo', beat: beat.beat, atMs: nowMs(), ...this.#proven(store.position()) })
  }

  #acknowledge(position: CommitPosition): void {
    this.#write({ kind: 'ack', ...this.#proven(position) })
  }

  #proofToFollow(): Uint8Array | undefined {
    const { epoch, proofs, session } = this.#parts
    return session && proofs.of(statements.follow(session, epoch))
  }

  #proven(position: CommitPosition) {
    const { proofs, session, store } = this.#parts
    const { isWhole } = store
    const proof = session && proofs.of(statements.acknowledgement(session, position, isWhole))
    return { position, isWhole, proof }
  }

  /** A primary that does not read is not written to: what it has missed is said when it does. */
  #write(message: Parameters<FollowStream['write']>[0]): void {
    if (!this.#call.destroyed && !this.#call.writableNeedDrain) this.#call.write(message)
  }
}

type PackedRow = Extract<ResponseOf<'Follow'>, { kind: 'rows' }>['rows'][number]

function rowsOf(rows: readonly PackedRow[], parts: Parts): LogRow[] {
  return rows.map(([sequence, epoch, atMs, checksum, batch], at) => {
    return { sequence, epoch, atMs, checksum, batch: at === 0 ? parts.take(batch) : batch }
  })
}
