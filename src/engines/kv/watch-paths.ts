/**
 * `watch/`: what happens to secrets below a folder, told to who waits for it. An answer has a cursor; the next request with
 * it is told what happened since, at once or when it happens. Only of secrets that the caller may read.
 */
import { type Chronicle, type EngineCall, path, type Path, Rejection, type Reply } from '../engine.ts'
import { duration, inPath, text } from '../fields.ts'
import { Follower } from './follower.ts'
import { cursorText, Journal, type KvEvent, type Place } from './journal.ts'

/** Below the time that a request may take. */
const WAIT_SECONDS_MAX = 60
const WAIT_SECONDS_DEFAULT = 30
const EVENTS_MAX = 1000

interface Input {
  readonly path: string
  readonly cursor: string
  readonly wait: number
}

/** One for each mount that is watched; it goes with the mount. */
const journals = new WeakMap<Chronicle, Journal>()

function journalOf({ chronicle, mount }: EngineCall): Journal {
  if (!chronicle) throw new Rejection(400, 'nothing can be watched here')
  const journal = journals.get(chronicle) ?? new Journal(chronicle, mount)
  journals.set(chronicle, journal)
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

async function poll(follower: Follower, waitMs: number, signal: AbortSignal): Promise<Reply> {
  const endMs = performance.now() + waitMs
  for (;;) {
    const { epoch, events, isGap, isAll, upTo: sequence } = follower.next()
    const upTo = { epoch, sequence }
    if (isGap) return answer([], upTo, true)
    const leftMs = endMs - performance.now()
    if (events.length > 0 || signal.aborted) return limited(events, upTo)
    // There may be more of the log than one turn looks at.
    if (!isAll) await new Promise(setImmediate)
    else if (leftMs <= 0) return answer([], upTo, false)
    else await follower.wait(leftMs)
  }
}

async function watch(input: Input, call: EngineCall): Promise<Reply> {
  const journal = journalOf(call)
  if (input.wait > WAIT_SECONDS_MAX) throw new Rejection(400, `"wait" is at most ${WAIT_SECONDS_MAX} seconds`)
  if (input.cursor === '') return answer([], journal.newest, false)
  const follower = new Follower(journal, input, call)
  const leave = journal.attend()
  try {
    return await poll(follower, input.wait * 1000, call.signal)
  } finally {
    leave()
  }
}

export const watchPaths: readonly Path[] = [
  path({
    pattern: 'watch/:path*',
    summary: 'What happens to secrets below a folder; waits until something does',
    fields: {
      path: inPath('Folder, or the name of a secret; empty for all of the mount'),
      cursor: text('Of the answer before; empty for one from now on', { fallback: '' }),
      wait: duration(`How long to wait for something to happen, at most ${WAIT_SECONDS_MAX} s`, {
        fallback: WAIT_SECONDS_DEFAULT,
      }),
    },
    read: watch,
  }),
]
