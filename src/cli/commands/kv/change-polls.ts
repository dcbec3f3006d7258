/**
 * What happens to secrets, from a cursor on, asked for again and again: what `kv watch` prints.
 *
 * It uses the long poll and not the stream. Each request is answered whole, so it passes proxies that hold a stream back,
 * servers that hand requests on, and restarts; and the cursor of an answer is only taken once all of it was printed. When
 * a request fails it is sent again until it is answered: nothing is lost and nothing told twice. An answer that says the
 * request is wrong (4xx, but not 408 and 429) ends it with that answer's text.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../../platform/errors.ts'
import type { CommandIo } from '../../framework/command-shape.ts'
import { RefusedByAgent } from '../../client/http-client.ts'
import { type CoreAccess, requireCore } from '../../core/core-access.ts'

/** Below what proxies let a request wait. */
const POLL_MS = 25_000
/** Whoever has not answered this much later is not there any more. */
const PATIENCE_MS = 10_000
const WAIT_FIRST_MS = 100
const WAIT_MOST_MS = 2000

/** What one answer told. */
export interface Changes {
  readonly events: readonly unknown[]
  /** Where to go on once they are dealt with. */
  readonly cursor: string
  /** What was between the cursor and now is not known any more. */
  readonly isReset: boolean
}

export interface PollOptions {
  readonly core: CoreAccess
  /** Of the watch, below `/v1/`. */
  readonly path: string
  readonly io: CommandIo
  /** Aborting it ends the polls quietly. */
  readonly signal: AbortSignal
}

/** The cursor of now. Throws CommandError. */
export async function cursorOfNow({ core, path, signal }: Omit<PollOptions, 'io'>): Promise<string> {
  const { fields } = await requireCore(core, { path, signal })
  return fields.under('data').text('cursor')
}

/** Ends when the signal aborts, or when nothing has happened for `idleMs`. Throws CommandError. */
export async function* changesFrom(
  start: string,
  idleMs: number | undefined,
  options: PollOptions,
): AsyncGenerator<Changes> {
  let cursor = start
  for (let sinceMs = performance.now(); ; ) {
    const leftMs = idleMs === undefined ? POLL_MS : Math.max(0, sinceMs + idleMs - performance.now())
    const answer = await answered(cursor, Math.min(leftMs, POLL_MS), options)
    if (!answer) return
    if (answer.events.length > 0 || answer.isReset) {
      yield answer
      sinceMs = performance.now()
    } else if (idleMs !== undefined && performance.now() - sinceMs >= idleMs) return
    cursor = answer.cursor
  }
}

/** Asks until it is answered. Undefined when the signal aborts. */
async function answered(cursor: string, waitMs: number, options: PollOptions): Promise<Changes | undefined> {
  const { core, io, signal } = options
  let isBroken = false
  for (let pauseMs = WAIT_FIRST_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, WAIT_MOST_MS)) {
    try {
      const changes = await poll(cursor, waitMs, options)
      if (isBroken) io.err('outpost: resumed\n')
      return changes
    } catch (error) {
      if (signal.aborted) break
      if (error instanceof RefusedByAgent && error.isFinal) throw error
      const reason = messageOf(error)
      if (!isBroken) io.err(`outpost: connection to ${core.target.url.origin} lost (${reason}), resuming\n`)
      isBroken = true
    }
    await delay(pauseMs, undefined, { signal }).catch(() => undefined)
  }
  return undefined
}

async function poll(cursor: string, waitMs: number, { core, path, signal }: PollOptions): Promise<Changes> {
  const late = AbortSignal.timeout(waitMs + PATIENCE_MS)
  const query = { cursor, wait: `${Math.ceil(waitMs / 1000)}s` }
  const { fields } = await requireCore(core, { path, query, signal: AbortSignal.any([signal, late]) })
  const data = fields.under('data')
  const events = data.value('events')
  return {
    events: Array.isArray(events) ? (events as unknown[]) : [],
    cursor: data.text('cursor'),
    isReset: data.boolean('reset'),
  }
}
