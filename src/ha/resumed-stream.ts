/**
 * A stream that survives a change of the active server: when it is interrupted, the request is repeated from the cursor of the last
 * event that was passed on. Each chunk has complete lines, and an interrupted stream has passed on whole chunks only, so its reader
 * receives each event exactly once and does not notice the interruption.
 */
import { Refusal } from '../platform/errors.ts'
import { StreamedAnswer, type WholeAnswer } from '../platform/operation.ts'
import type { RawInput } from '../platform/schema.ts'

/** Requests that wait for changes, as long polls or streams. The module `secrets` knows their parameters and formats. */
export interface LastingRequests {
  isLasting(raw: RawInput): boolean
  /** The cursor after the last event of a chunk; undefined if it has none. */
  cursorOf(headers: Readonly<Record<string, string>>, chunk: Uint8Array): string | undefined
  /** The request for the events after a cursor. */
  resumed(raw: RawInput, cursor: string): RawInput
  /** The request with what is left of its time after `elapsedMs`. */
  shortened(raw: RawInput, elapsedMs: number): RawInput
  /** The last chunk of a stream, with the response that the request would get now. */
  endOf(headers: Readonly<Record<string, string>>, answer: WholeAnswer): Uint8Array
}

/** Watches whether the server that responds to a request is still the active one. */
export interface MoveWatch {
  /** Aborts when it is not. */
  readonly signal: AbortSignal
  stop(): void
}

export interface ServedStream {
  readonly answer: StreamedAnswer
  readonly moved: MoveWatch
  /** Whether a chunk of this server may be passed on: the lease was valid after it was read. Absent for the stream of another server. */
  readonly confirm?: () => Promise<boolean>
}

export interface ResumptionOptions {
  /** Aborts when the reader has gone. */
  readonly signal: AbortSignal
  readonly requests: LastingRequests
  /** Repeats the request, from a cursor if any was passed on. `isMoved`: another server is active, or will be. */
  readonly repeat: (cursor: string | undefined, isMoved: boolean) => Promise<ServedStream | WholeAnswer>
}

export async function* resumedStream(first: ServedStream, options: ResumptionOptions): AsyncGenerator<Uint8Array> {
  const { repeat, requests, signal } = options
  const { headers } = first.answer
  let cursor: string | undefined
  for (let source = first; ; ) {
    const { answer, confirm, moved } = source
    let isConfirmed = true
    try {
      for await (const chunk of answer.chunks) {
        isConfirmed = (await confirm?.()) ?? true
        if (!isConfirmed) break
        cursor = requests.cursorOf(headers, chunk) ?? cursor
        yield chunk
      }
      // Without a change of the active server a stream ends for a reason that its last line states.
      if (signal.aborted || (isConfirmed && !moved.signal.aborted)) return
    } catch (error) {
      if (signal.aborted || !(moved.signal.aborted || isInterruption(error))) throw error
    } finally {
      moved.stop()
    }
    const next = await repeat(cursor, !isConfirmed || moved.signal.aborted)
    if (!('answer' in next)) {
      yield requests.endOf(headers, next)
      return
    }
    source = next
  }
}

const INTERRUPTIONS: ReadonlySet<string> = new Set(['not_active', 'not_connected', 'no_answer', 'unavailable'])

/** True if the server that sent the stream has ended or stepped down. */
function isInterruption(error: unknown): boolean {
  return error instanceof Refusal && INTERRUPTIONS.has(error.code)
}
