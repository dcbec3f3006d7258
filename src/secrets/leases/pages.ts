/** Many leases, page by page. */
import { nextTurn } from '../../platform/scheduler.ts'

/** Pages that are under way: while one is being written the next ones are begun. */
const AT_ONCE = 4

/**
 * Does the work of each page, some at a time and one in each turn of the event loop, so that others are served in between.
 * Stops where `work` resolves with false. Rejects with the first error, once nothing is under way.
 */
export async function eachPage<T>(
  pages: Iterable<T> | AsyncIterable<T>,
  work: (page: T) => Promise<boolean>,
): Promise<void> {
  const underWay = new Set<Promise<void>>()
  let isOver = false
  const errors: unknown[] = []
  for await (const page of pages) {
    const done = work(page)
      .then((goesOn) => void (isOver ||= !goesOn))
      .catch((error: unknown) => void (isOver = errors.push(error) > 0))
      .finally(() => underWay.delete(done))
    underWay.add(done)
    await nextTurn()
    if (underWay.size >= AT_ONCE) await Promise.race(underWay)
    if (isOver) break
  }
  await Promise.all(underWay)
  if (errors.length > 0) throw errors[0]
}

/** The same items in pages of `length`, the last one shorter. */
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

/** Pages that are read one behind the other: `read` gives what is behind the item before, or nothing any more. */
export function* readPages<T>(read: (last: T | undefined) => readonly T[]): Generator<readonly T[]> {
  for (let page = read(undefined); page.length > 0; page = read(page.at(-1))) yield page
}
