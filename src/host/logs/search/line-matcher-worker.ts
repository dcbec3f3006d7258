/**
 * The worker thread of `line-matchers.ts`: matches a pattern in lines that lie in shared memory and answers with positions.
 * It caches the patterns that it used last, compiled, because followers send the same ones again.
 */
import { lowerThreadPriority, serveTasks } from '../../../platform/worker-task.ts'
import { PatternSearch } from './pattern-search.ts'

/** Each may hold a state table of 8 MiB by the engine's own account, and some garbage beside it. */
const PATTERNS_MAX = 4

/** Blocks of these lengths lie one behind the other in `slot`. */
export interface MatchRequest {
  readonly slot: SharedArrayBuffer
  readonly text: string
  readonly lengths: readonly number[]
}

export interface MatchResponse {
  /** For each block the stretches that match. */
  readonly found: readonly Uint32Array<ArrayBuffer>[]
  readonly tookMs: number
}

/** Followers of a log come before searches in one. */
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
