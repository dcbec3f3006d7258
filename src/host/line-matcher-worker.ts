/**
 * The worker thread of `line-matchers.ts`: matches patterns in the lines that lie in shared memory and says where they
 * matched. It keeps the patterns it used last, compiled, because followers come back with the same ones.
 */
import { readlinkSync } from 'node:fs'
import { setPriority } from 'node:os'
import { basename } from 'node:path'
import { parentPort, workerData } from 'node:worker_threads'
import { PatternSearch } from './pattern-search.ts'

/** Each may hold a state table of 8 MiB by the engine's own account, and some garbage beside it. */
const PATTERNS_MAX = 4

/** What the thread is told: lines lie in slot `slot`, blocks of these lengths one behind the other. */
export interface MatchOrder {
  readonly slot: number
  readonly text: string
  readonly lengths: readonly number[]
}

/** What it answers: for each block the stretches that match, or why there is no answer. */
export interface MatchAnswer {
  readonly slot: number
  readonly found: readonly Uint32Array<ArrayBuffer>[]
  readonly tookMs: number
  readonly failure?: string
}

/** What it is given at its start. */
export interface MatcherData {
  readonly slots: readonly SharedArrayBuffer[]
}

/** More than the main thread's 0, which stands for less: who tails a log is served before who searches one. */
const NICENESS = 5

/** Puts this thread, not the process, behind the others. */
function standBack(): void {
  try {
    setPriority(Number(basename(readlinkSync('/proc/thread-self'))), NICENESS)
  } catch {
    // Then it stands beside them.
  }
}

standBack()
const { slots } = workerData as MatcherData
const buffers = slots.map((slot) => Buffer.from(slot))
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

function answer({ slot, text, lengths }: MatchOrder): MatchAnswer {
  const startMs = performance.now()
  const buffer = buffers[slot]
  try {
    if (!buffer) throw new Error(`there is no slot ${slot}`)
    const search = searchOf(text)
    let at = 0
    const found = lengths.map((length) => Uint32Array.from(search.matches(buffer.subarray(at, (at += length)))))
    return { slot, found, tookMs: performance.now() - startMs }
  } catch (error) {
    const failure = error instanceof Error ? error.message : String(error)
    return { slot, found: [], tookMs: performance.now() - startMs, failure }
  }
}

parentPort?.on('message', (order: MatchOrder) => {
  const said = answer(order)
  parentPort?.postMessage(
    said,
    said.found.map(({ buffer }) => buffer),
  )
})
