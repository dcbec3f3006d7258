/**
 * The worker thread of `line-matchers.ts`: matches a pattern in lines in shared memory and responds with positions. It caches
 * the compiled form of recent patterns, because followers send the same pattern repeatedly.
 */
import { lowerThreadPriority, serveTasks } from '../../../platform/worker-task.ts'
import { PatternSearch } from './pattern-search.ts'

/** Each may have a state table of 8 MiB by the engine's accounting, plus garbage. */
const PATTERNS_MAX = 4

/** Blocks of these lengths are consecutive in `slot`. */
export interface MatchRequest {
  readonly slot: SharedArrayBuffer
  readonly text: string
  readonly lengths: readonly number[]
}

export interface MatchResponse {
  /** The matching ranges of each block. */
  readonly found: readonly Uint32Array<ArrayBuffer>[]
  readonly tookMs: number
}

/** Searches have a lower priority than followers. */
const PRIORITY_STEPS = 5

const searches = new Map<string, PatternSearch>()

function searchOf(text: string): PatternSearch {
  const search = searches.get(text) ?? new PatternSearch(text)
  searches.delete(text)
  searches.set(text, search)
  if (searches.size > PATTERNS_MAX) {
    const [oldest = ''] = searches.keys()
    searches.delete(oldest)
  }
  return search
}

function match({ slot, text, lengths }: MatchRequest): MatchResponse {
  const startMs = performance.now()
  const buffer = Buffer.from(slot)
  const search = searchOf(text)
  let at = 0
  const found = lengths.map((length) => Uint32Array.from(search.matches(buffer.subarray(at, (at += length)))))
  return { found, tookMs: performance.now() - startMs }
}

lowerThreadPriority(PRIORITY_STEPS)
serveTasks(match, ({ found }) => found.map(({ buffer }) => buffer))
