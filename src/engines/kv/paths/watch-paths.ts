/**
 * `watch/`: changes of secrets below a folder, as a long poll or as a stream. A response has a cursor. The next request with the
 * cursor returns the changes since, and waits if there are none. Only changes of secrets that the caller may read are returned.
 */
import { nextTurn } from '../../../platform/scheduler.ts'
import type { Storage } from '../../../storage/barrier/storage.ts'
import { type EngineCall, type Path, Rejection, type Reply, type StreamEvent } from '../../framework/engine.ts'
import { boolean, duration, inPath, text } from '../../framework/fields.ts'
import { ChangeFollower } from '../store/change-follower.ts'
import { cursorText, ChangeFeed, type KvEvent, type FeedPosition, tooManyWatchers } from '../store/change-feed.ts'
import { kvPath } from '../store/rights.ts'

/** Less than the timeout of requests. */
const WAIT_SECONDS_MAX = 60
const WAIT_SECONDS_DEFAULT = 30
const EVENTS_MAX = 1000
/** Events per batch of a stream. A slow reader has two batches in memory. */
const STREAM_BATCH_MAX = 200
/** With each heartbeat the connection and the rights of the caller are checked. */
const HEARTBEAT_MS = 10_000

interface WatchInput {
  readonly path: string
  readonly cursor: string
  readonly wait: number
  readonly stream: boolean
}

/** By mount. */
const feeds = new WeakMap<Storage, ChangeFeed>()

function feedOf({ mount, storage }: EngineCall): ChangeFeed {
  const feed = feeds.get(storage) ?? new ChangeFeed(storage, mount)
  feeds.set(storage, feed)
  return feed
}

function changesReply(events: readonly KvEvent[], upTo: FeedPosition, isReset: boolean): Reply {
  return { data: { events, cursor: cursorText(upTo), ...(isReset && { reset: true }) } }
}

/** At most `EVENTS_MAX` events, without splitting a commit. */
function limitedReply(events: readonly KvEvent[], upTo: FeedPosition): Reply {
  const beyond = events[EVENTS_MAX]
  const end = beyond?.sequence ?? Number.POSITIVE_INFINITY
  const whole = events.filter(({ sequence }) => sequence < end)
  // A commit with more events is returned whole.
  if (beyond && whole.length === 0)
    return changesReply(
      events.filter(({ sequence }) => sequence === end),
      { ...upTo, sequence: end },
      false,
    )
  const last = whole.length < events.length ? whole.at(-1) : undefined
  return changesReply(whole, { ...upTo, sequence: last?.sequence ?? upTo.sequence }, false)
}

/** Responds on a change, after `waitMs`, or when the server stops. The cursor follows all events that were read, so none is lost. */
async function poll(follower: ChangeFollower, waitMs: number, call: EngineCall): Promise<Reply> {
  const { draining, signal } = call
  const endMs = performance.now() + waitMs
  for (;;) {
    const { epoch, events, isGap, isCaughtUp, upTo: sequence } = follower.next()
    const upTo = { epoch, sequence }
    if (isGap) return changesReply([], upTo, true)
    const leftMs = endMs - performance.now()
    if (events.length > 0 || signal.aborted || draining?.aborted) return limitedReply(events, upTo)
    // The log may have further pages.
    if (!isCaughtUp) await nextTurn()
    else if (leftMs <= 0) return changesReply([], upTo, false)
    else await follower.wait(leftMs, draining)
  }
}

function streamEvent({ cursor, ...value }: KvEvent): StreamEvent {
  return { cursor, value }
}

interface StreamOptions {
  readonly start: string
  readonly signal: AbortSignal
  readonly heartbeatMs: number
}

/** The start cursor, then events, and heartbeats with the cursor. */
async function* eventStream(feed: ChangeFeed, follower: ChangeFollower, { start, signal, heartbeatMs }: StreamOptions) {
  const unsubscribe = feed.subscribe()
  try {
    yield [{ cursor: start }] satisfies StreamEvent[]
    let lastEventMs = performance.now()
    while (!signal.aborted) {
      const { epoch, events, isCaughtUp, isGap, upTo: sequence } = follower.next()
      const isDue = isGap || (events.length === 0 && performance.now() - lastEventMs >= heartbeatMs)
      const cursor = cursorText({ epoch, sequence })
      if (isDue) yield [isGap ? { cursor, kind: 'reset', value: { reset: true } } : { cursor }]
      for (let at = 0; at < events.length; at += STREAM_BATCH_MAX)
        yield events.slice(at, at + STREAM_BATCH_MAX).map(streamEvent)
      if (isDue || events.length > 0) lastEventMs = performance.now()
      // The log may have further pages.
      else if (!isCaughtUp) await nextTurn()
      else await follower.wait(lastEventMs + heartbeatMs - performance.now())
    }
  } finally {
    unsubscribe()
  }
}

function streamReply(input: WatchInput, call: EngineCall, heartbeatMs: number): Reply {
  const feed = feedOf(call)
  if (feed.isFull) throw tooManyWatchers()
  const cursor = call.eventStream?.lastCursor ?? input.cursor
  const start = cursor === '' ? cursorText(feed.newest) : cursor
  const follower = new ChangeFollower(feed, { path: input.path, cursor: start }, call)
  return { stream: eventStream(feed, follower, { start, signal: call.signal, heartbeatMs }) }
}

async function watch(input: WatchInput, call: EngineCall): Promise<Reply> {
  const feed = feedOf(call)
  if (input.wait > WAIT_SECONDS_MAX) throw new Rejection(400, `"wait" must be at most ${WAIT_SECONDS_MAX} seconds`)
  if (input.cursor === '') return changesReply([], feed.newest, false)
  const follower = new ChangeFollower(feed, input, call)
  const unsubscribe = feed.subscribe()
  try {
    return await poll(follower, input.wait * 1000, call)
  } finally {
    unsubscribe()
  }
}

/** `heartbeatMs` is the interval of heartbeats in streams. */
export function watchPaths(heartbeatMs = HEARTBEAT_MS): readonly Path[] {
  return [
    kvPath({
      pattern: 'watch/:path*',
      summary: 'Wait for changes of secrets below a folder',
      fields: {
        path: inPath('Folder, or the name of a secret; empty for all of the mount'),
        cursor: text('Cursor of the previous response; empty to start with new changes', { fallback: '' }),
        wait: duration(`Maximum time to wait for a change, at most ${WAIT_SECONDS_MAX} s`, {
          fallback: WAIT_SECONDS_DEFAULT,
        }),
        stream: boolean('Stream changes as lines of JSON; with `Accept: text/event-stream` as server-sent events', {
          fallback: false,
        }),
      },
      read: (input, call) =>
        input.stream || call.eventStream ? streamReply(input, call, heartbeatMs) : watch(input, call),
    }),
  ]
}
