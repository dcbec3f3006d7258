/** Work on many items, page by page. */
import { nextTurn } from '../../platform/scheduler.ts'

/** Concurrent pages: the next ones are read while one is being written. */
const PAGES_MAX = 4

/**
 * Does the work of each page: a few pages concurrently, one started in each turn of the event loop. Stops when `work` resolves to
 * false. Rejects with the first error when no page is under way.
 */
export async function eachPage<T>(
  pages: Iterable<T> | AsyncIterable<T>,
  work: (page: T) => Promise<boolean>,
): Promise<void> {
  const underWay = new Set<Promise<void>>()
  let isStopped = false
  const errors: unknown[] = []
  for await (const page of pages) {
    const done = work(page)
      .then((isToContinue) => void (isStopped ||= !isToContinue))
      .catch((error: unknown) => void (isStopped = errors.push(error) > 0))
      .finally(() => underWay.delete(done))
    underWay.add(done)
    await nextTurn()
    if (underWay.size >= PAGES_MAX) await Promise.race(underWay)
    if (isStopped) break
  }
  await Promise.all(underWay)
  if (errors.length > 0) throw errors[0]
}

/** Divides items into pages of `length`; the last one may be shorter. */
export function* inPages<T>(items: Iterable<T>, length: number): Generator<T[]> {
  let page: T[] = []
  for (const item of items) {
    page.push(item)
    if (page.length < length) continue
    yield page
    page = []
  }
  if (page.length > 0) yield page
}

/** Reads pages until one is empty. `read` returns the items after `last`. */
export function* readPages<T>(read: (last: T | undefined) => readonly T[]): Generator<readonly T[]> {
  for (let page = read(undefined); page.length > 0; page = read(page.at(-1))) yield page
}
