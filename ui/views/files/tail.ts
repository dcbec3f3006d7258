/** Follows the end of a file: continues after a lost connection where it was, and ends when the file is deleted. */
import type { Frame } from '../../api/frame-reader.ts'

export type TailState =
  | { readonly kind: 'connecting' }
  | { readonly kind: 'following' }
  | { readonly kind: 'waiting'; readonly error: string; readonly retryMs: number }
  | { readonly kind: 'ended'; readonly reason: string }

export interface FileTailOptions {
  /** Frames after a cursor; empty: the last part of the file. */
  readonly open: (cursor: string, signal: AbortSignal) => AsyncIterable<Pick<Frame, 'cursor' | 'data' | 'event'>>
  readonly onText: (text: string) => void
  readonly onState: (state: TailState) => void
  /** True for an error that another request would have as well. */
  readonly isFinal: (error: unknown) => boolean
  readonly signal: AbortSignal
  readonly wait?: (ms: number, signal: AbortSignal) => Promise<void>
}

const RETRY_MIN_MS = 1000
const RETRY_MAX_MS = 15_000
export const TRUNCATED = '\n[The file was truncated]\n'

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true })
  })
}

/** Resolves when the file is deleted, after a final error, or when `signal` is aborted. */
export async function tail({ isFinal, onState, onText, open, signal, wait = sleep }: FileTailOptions): Promise<void> {
  let cursor = ''
  let retryMs = RETRY_MIN_MS
  let decoder = new TextDecoder()
  while (!signal.aborted) {
    let error = 'The connection has ended.'
    onState({ kind: 'connecting' })
    try {
      for await (const frame of open(cursor, signal)) {
        if (frame.cursor !== undefined) cursor = frame.cursor
        onState({ kind: 'following' })
        retryMs = RETRY_MIN_MS
        if (frame.data) onText(decoder.decode(frame.data, { stream: true }))
        if (frame.event === 'file deleted') return onState({ kind: 'ended', reason: 'The file was deleted.' })
        if (frame.event !== '') {
          decoder = new TextDecoder()
          onText(TRUNCATED)
        }
      }
    } catch (failure) {
      if (signal.aborted) return
      error = failure instanceof Error ? failure.message : String(failure)
      if (isFinal(failure)) return onState({ kind: 'ended', reason: error })
    }
    if (signal.aborted) return
    onState({ kind: 'waiting', error, retryMs })
    await wait(retryMs, signal)
    retryMs = Math.min(2 * retryMs, RETRY_MAX_MS)
  }
}
