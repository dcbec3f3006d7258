/** Checks a history object by object, and reduces a violation to the few operations that show it. */
import type { HistoryKind, Operations } from './history-kind.ts'
import type { Operation } from './operation.ts'

export interface Violation {
  readonly kind: string
  readonly object: string
  /** Operations of the object. */
  readonly total: number
  /** `undecided`: the search was too long. */
  readonly verdict: 'violation' | 'undecided'
  /** A readable table of the operations that show the violation, with times in seconds since the start of the history. */
  readonly report: string
  readonly operations: readonly Operation[]
}

/** A reduction checks the history many times. */
const REDUCTION_CHECKS_MAX = 3000
/** Of a report. */
const LINES_MAX = 40

export function violationsOf<Input, Result>(
  kind: HistoryKind<Input, Result>,
  operations: Operations<Input, Result>,
): readonly Violation[] {
  const startMs = Math.min(...operations.map(({ invokedMs }) => invokedMs))
  return [...Map.groupBy(operations, ({ object }) => object)].flatMap(([object, ofObject]) => {
    const resolved = kind.resolve(ofObject)
    const { kind: verdict } = kind.strict(resolved)
    if (verdict === 'linearizable') return []
    const shown = verdict === 'violation' ? smallestPart(kind, resolved) : resolved.slice(-20)
    const title = `${kind.name} ${object}: ${verdict}, ${shown.length} of ${ofObject.length} operations`
    const lines = shown.map((operation) => lineOf(kind, operation, startMs))
    const left = lines.length - LINES_MAX
    const cut = left > 0 ? [...lines.slice(0, LINES_MAX / 2), `… ${left} more`, ...lines.slice(-LINES_MAX / 2)] : lines
    const report = [title, ...cut].join('\n')
    return [{ kind: kind.name, object, total: ofObject.length, verdict, report, operations: shown }]
  })
}

/** A part of a history that is not linearizable, with as few operations as can be found quickly. */
export function smallestPart<Input, Result>(
  kind: HistoryKind<Input, Result>,
  operations: Operations<Input, Result>,
): Operations<Input, Result> {
  const isPartialViolation = (part: Operations<Input, Result>) => kind.partial(part).kind === 'violation'
  if (isPartialViolation(operations)) {
    const completed = operations.filter(({ result }) => result !== undefined)
    return reduced(shortestBeginning(completed, isPartialViolation), () => true, isPartialViolation)
  }
  const isViolation = (part: Operations<Input, Result>) => kind.strict(part).kind === 'violation'
  const isRemovable = (operation: Operation<Input, Result>) => kind.isObservation(operation)
  return reduced(shortestBeginning(operations, isViolation), isRemovable, isViolation)
}

/** The history up to a time: what had not ended then has an unknown outcome. */
function beginning<Input, Result>(operations: Operations<Input, Result>, endMs: number): Operations<Input, Result> {
  return operations
    .filter(({ invokedMs }) => invokedMs <= endMs)
    .map((operation) =>
      operation.respondedMs <= endMs
        ? operation
        : { ...operation, respondedMs: Number.POSITIVE_INFINITY, result: undefined },
    )
}

/** A beginning of a linearizable history is linearizable, so the shortest violation is found by bisection. */
function shortestBeginning<Input, Result>(
  operations: Operations<Input, Result>,
  isViolation: (part: Operations<Input, Result>) => boolean,
): Operations<Input, Result> {
  const ends = operations
    .map(({ respondedMs }) => respondedMs)
    .filter(Number.isFinite)
    .toSorted((a, b) => a - b)
  let [low, high] = [0, ends.length - 1]
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    if (isViolation(beginning(operations, ends[middle] ?? 0))) high = middle
    else low = middle + 1
  }
  return beginning(operations, ends[low] ?? 0)
}

/** Removes what is not needed for the violation, in halves, quarters and so on. */
function reduced<Input, Result>(
  operations: Operations<Input, Result>,
  isRemovable: (operation: Operation<Input, Result>) => boolean,
  isViolation: (part: Operations<Input, Result>) => boolean,
): Operations<Input, Result> {
  let left = operations
  let checks = 0
  for (let size = Math.ceil(operations.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    // The newest are tried last: a late operation is often the one that shows the violation.
    for (let at = 0; at < left.length && checks < REDUCTION_CHECKS_MAX; ) {
      const chunk = new Set(left.slice(at, at + size).filter(isRemovable))
      const without = left.filter((operation) => !chunk.has(operation))
      checks++
      if (chunk.size > 0 && isViolation(without)) left = without
      else at += size
    }
  }
  return left
}

function lineOf<Input, Result>(
  kind: HistoryKind<Input, Result>,
  operation: Operation<Input, Result>,
  startMs: number,
): string {
  const seconds = (ms: number) => (Number.isFinite(ms) ? ((ms - startMs) / 1000).toFixed(3) : '…').padStart(9)
  const { client, invokedMs, maxAgeMs, note, respondedMs, server } = operation
  const more = [maxAgeMs === undefined ? '' : `max age ${maxAgeMs} ms`, note ?? ''].filter((text) => text !== '')
  const suffix = more.length === 0 ? '' : `  (${more.join(', ')})`
  return `${seconds(invokedMs)} –${seconds(respondedMs)}  ${client} → ${server}  ${kind.describe(operation)}${suffix}`
}
