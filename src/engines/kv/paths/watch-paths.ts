/**
 * `watch/`: what happens to secrets below a folder, told to who waits for it. An answer has a cursor; the next request with
 * it is told what happened since, at once or when it happens. With `stream` one answer goes on. Only of secrets that the
 * caller may read.
 */
import { nextTurn } from '../../../platform/scheduler.ts'
import type { Storage } from '../../../storage/barrier/storage.ts'
import { type EngineCall, type Path, Rejection, type Reply, type StreamEvent } from '../../framework/engine.ts'
import { boolean, duration, inPath, text } from '../../framework/fields.ts'
import { Follower } from '../store/change-follower.ts'
import { cursorText, Journal, type KvEvent, type Place, tooMany } from '../store/journal.ts'
import { kvPath } from '../store/reads.ts'

/** Below the time that a request may take. */
const WAIT_SECONDS_MAX = 60
const WAIT_SECONDS_DEFAULT = 30
const EVENTS_MAX = 1000
/** Of a stream, which a caller who is slow has in memory twice. */
const TOLD_AT_ONCE = 200
/** So that a caller who is gone is noticed, and one that may hear nothing any more. */
const HEARTBEAT_MS = 10_000

interface Input {
  readonly path: string
  readonly cursor: string
  readonly wait: number
  readonly stream: boolean
}

/** One for each mount that is watched; it goes with the mount. */
const journals = new WeakMap<Storage, Journal>()

function journalOf({ mount, storage }: EngineCall): Journal {
  const journal = journals.get(storage) ?? new Journal(storage, mount)
  journals.set(storage, journal)
  return journal
}

function answer(events: readonly KvEvent[], upTo: Place, isReset: boolean): Reply {
  return { data: { events, cursor: cursorText(upTo), ...(isReset && { reset: true }) } }
}

/** The first of them, so that no commit is cut in two; else all. */
function limited(events: readonly KvEvent[], upTo: Place): Reply {
  const beyond = events[EVENTS_MAX]
  const end = beyond?.sequence ?? Number.POSITIVE_INFINITY
  const whole = events.filter(({ sequence }) => sequence < end)
  // One commit with more than that many: it stays whole.
  if (beyond && whole.length === 0)
    return answer(
      events.filter(({ sequence }) => sequence === end),
      { ...upTo, sequence: end },
      false,
    )
  const last = whole.length < events.length ? whole.at(-1) : undefined
  return answer(whole, { ...upTo, sequence: last?.sequence ?? upTo.sequence }, false)
}

/** Answers on a change, after `waitMs`, or when the server stops: the cursor is behind all that was read, so nothing is lost. */
async function poll(follower: Follower, waitMs: number, call: EngineCall): Promise<Reply> {
  const { draining, signal } = call
  const endMs = performance.now() + waitMs
  for (;;) {
    const { epoch, events, isGap, isAll, upTo: sequence } = follower.next()
    const upTo = { epoch, sequence }
    if (isGap) return answer([], upTo, true)
    const leftMs = endMs - performance.now()
    if (events.length > 0 || signal.aborted || draining?.aborted) return limited(events, upTo)
    // There may be more of the log than one turn looks at.
    if (!isAll) await nextTurn()
    else if (leftMs <= 0) return answer([], upTo, false)
    else await follower.wait(leftMs, draining)
  }
}

function toldOf({ cursor, ...value }: KvEvent): StreamEvent {
  return { cursor, value }
}

interface Telling {
  readonly start: string
  readonly signal: AbortSignal
  readonly heartbeatMs: number
}

/** First where it begins, then what happens; the cursor alone when nothing has happened for a while. */
async function* told(journal: Journal, follower: Follower, { start, signal, heartbeatMs }: Telling) {
  const leave = journal.attend()
  try {
    yield [{ cursor: start }] satisfies StreamEvent[]
    let toldMs = performance.now()
    while (!signal.aborted) {
      const { epoch, events, isAll, isGap, upTo: sequence } = follower.next()
      const isDue = isGap || (events.length === 0 && performance.now() - toldMs >= heartbeatMs)
      const cursor = cursorText({ epoch, sequence })
      if (isDue) yield [isGap ? { cursor, kind: 'reset', value: { reset: true } } : { cursor }]
      for (let at = 0; at < events.length; at += TOLD_AT_ONCE) yield events.slice(at, at + TOLD_AT_ONCE).map(toldOf)
      if (isDue || events.length > 0) toldMs = performance.now()
      // There may be more of the log than one turn looks at.
      else if (!isAll) await nextTurn()
      else await follower.wait(toldMs + heartbeatMs - performance.now())
    }
  } finally {
    leave()
  }
}

function streamed(input: Input, call: EngineCall, heartbeatMs: number): Reply {
  const journal = journalOf(call)
  if (journal.isFull) throw tooMany()
  const cursor = call.eventStream?.lastCursor ?? input.cursor
  const start = cursor === '' ? cursorText(journal.newest) : cursor
  const follower = new Follower(journal, { path: input.path, cursor: start }, call)
  return { stream: told(journal, follower, { start, signal: call.signal, heartbeatMs }) }
}

async function watch(input: Input, call: EngineCall): Promise<Reply> {
  const journal = journalOf(call)
  if (input.wait > WAIT_SECONDS_MAX) throw new Rejection(400, `"wait" is at most ${WAIT_SECONDS_MAX} seconds`)
  if (input.cursor === '') return answer([], journal.newest, false)
  const follower = new Follower(journal, input, call)
  const leave = journal.attend()
  try {
    return await poll(follower, input.wait * 1000, call)
  } finally {
    leave()
  }
}

/** A stream that has nothing to tell for `heartbeatMs` tells its cursor. */
export function watchPaths(heartbeatMs = HEARTBEAT_MS): readonly Path[] {
  return [
    kvPath({
      pattern: 'watch/:path*',
      summary: 'What happens to secrets below a folder; waits until something does',
      fields: {
        path: inPath('Folder, or the name of a secret; empty for all of the mount'),
        cursor: text('Of the answer before; empty for one from now on', { fallback: '' }),
        wait: duration(`How long to wait for something to happen, at most ${WAIT_SECONDS_MAX} s`, {
          fallback: WAIT_SECONDS_DEFAULT,
        }),
        stream: boolean('Go on telling, a line of JSON for each; as with `Accept: text/event-stream`', {
          fallback: false,
        }),
      },
      read: (input, call) =>
        input.stream || call.eventStream ? streamed(input, call, heartbeatMs) : watch(input, call),
    }),
  ]
}
