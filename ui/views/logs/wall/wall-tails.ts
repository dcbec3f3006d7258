/** The tails of the wall, in its query: `?tail=ALLOCATION/TASK&tail=job/NAMESPACE/JOB`. */
import { type LogTarget, pathOfTarget, targetOfPath } from '../stream/log-target.ts'

export const TAILS_MAX = 9

export function tailsOf(query: URLSearchParams): readonly LogTarget[] {
  const paths = [...new Set(query.getAll('tail'))]
  return paths.flatMap((path) => targetOfPath(path) ?? []).slice(0, TAILS_MAX)
}

/** The tails that the wall showed last, while the page is open. */
let lastTails: readonly LogTarget[] = []

export function rememberTails(tails: readonly LogTarget[]): void {
  lastTails = tails
}

/** The path of the wall with what it showed last and one more tail. */
export function wallPathWith(target: LogTarget): string {
  const path = pathOfTarget(target)
  const others = lastTails.filter((each) => pathOfTarget(each) !== path)
  return wallPath([...others.slice(0, TAILS_MAX - 1), target])
}

/** The path of the wall with these tails. `maximized` is the index of the only one that is shown. */
export function wallPath(tails: readonly LogTarget[], maximized?: number): string {
  const shown = tails.slice(0, TAILS_MAX)
  const query = new URLSearchParams(shown.map((target): [string, string] => ['tail', pathOfTarget(target)]))
  if (maximized !== undefined) query.set('max', String(maximized))
  return query.size === 0 ? '/logs/wall' : `/logs/wall?${query.toString()}`
}

export function maximizedOf(query: URLSearchParams, count: number): number | undefined {
  const index = Number(query.get('max') ?? '-1')
  return Number.isInteger(index) && index >= 0 && index < count ? index : undefined
}

/** Columns of the grid. */
export function gridColumns(count: number): number {
  return Math.ceil(Math.sqrt(count))
}
