/**
 * Decides whether a history is linearizable: whether each operation can be given a moment between its invocation and its
 * response so that their results are those of a sequential object, the *model*.
 *
 * The search is that of Wing and Gong with the memoisation of Lowe ("Testing for linearizability", 2017): depth first over
 * the order of the operations, and a pair of (operations that are ordered, state) is visited once. Operations with an
 * unknown outcome never end, and may be left out. They are concurrent with everything after them, so a model names those
 * that are interchangeable: only the earliest of them is tried. Those whose effect was seen are completed before
 * (`HistoryKind.resolve`). An operation that is possible now and leaves the state as it is comes next without an alternative.
 */
import { Random } from '../frames.ts'
import { effectiveFromMs, type Operation } from './operation.ts'

export interface Model<State, Input, Result> {
  readonly initial: State
  /** The state after the operation; undefined if it cannot have this result. Without a result each one is possible. */
  step(state: State, input: Input, result: Result | undefined): State | undefined
  /** Equal for equal states only. */
  keyOf(state: State): string
  /** Equal for unknown operations that have the same effect in every state; undefined if there are no others. */
  classOf(input: Input): string | undefined
  /** True if an unknown operation that is possible in this state is not possible in any later one. */
  isNowOrNever(input: Input): boolean
  /** True if an operation without a result can change the state. */
  mayChange(input: Input): boolean
}

export type Verdict =
  | { readonly kind: 'linearizable'; readonly states: number }
  | { readonly kind: 'violation'; readonly states: number }
  /** The limit of states was reached. */
  | { readonly kind: 'undecided'; readonly states: number }

/** Some seconds. */
const STATES_MAX = 2_000_000

interface Item<Input, Result> {
  readonly operation: Operation<Input, Result>
  readonly fromMs: number
  readonly untilMs: number
  readonly isUnknown: boolean
  readonly class: string | undefined
  /** Random numbers: their XOR over the ordered operations identifies the set. */
  readonly high: number
  readonly low: number
  previous: Item<Input, Result> | undefined
  next: Item<Input, Result> | undefined
}

interface Frame<State, Input, Result> {
  readonly state: State
  readonly candidates: readonly Item<Input, Result>[]
  at: number
  /** The operation that is ordered at this depth. */
  chosen: Item<Input, Result> | undefined
}

export function checkLinearizable<State, Input, Result>(
  model: Model<State, Input, Result>,
  operations: readonly Operation<Input, Result>[],
  statesMax = STATES_MAX,
): Verdict {
  return new Search(model, operations, statesMax).run()
}

class Search<State, Input, Result> {
  readonly #model: Model<State, Input, Result>
  readonly #statesMax: number
  readonly #visited = new Set<string>()
  /** The first operation that is not ordered; they are linked in the order of their beginning. */
  #first: Item<Input, Result> | undefined
  /** Completed operations that are not ordered. */
  #missing = 0
  #high = 0
  #low = 0

  constructor(model: Model<State, Input, Result>, operations: readonly Operation<Input, Result>[], statesMax: number) {
    this.#model = model
    this.#statesMax = statesMax
    const random = new Random(operations.length)
    let last: Item<Input, Result> | undefined
    for (const operation of operations.toSorted((a, b) => effectiveFromMs(a) - effectiveFromMs(b))) {
      const isUnknown = operation.result === undefined
      if (isUnknown && !model.mayChange(operation.input)) continue
      const item: Item<Input, Result> = {
        operation,
        fromMs: effectiveFromMs(operation),
        untilMs: isUnknown ? Number.POSITIVE_INFINITY : operation.respondedMs,
        isUnknown,
        class: isUnknown ? model.classOf(operation.input) : undefined,
        high: random.between(0, 0xffff_ffff),
        low: random.between(0, 0xffff_ffff),
        previous: last,
        next: undefined,
      }
      if (last) last.next = item
      else this.#first = item
      last = item
      if (!isUnknown) this.#missing++
    }
  }

  run(): Verdict {
    const stack: Frame<State, Input, Result>[] = [this.#frame(this.#model.initial)]
    for (let frame = stack.at(-1); frame !== undefined; frame = stack.at(-1)) {
      if (this.#missing === 0) return { kind: 'linearizable', states: this.#visited.size }
      if (this.#visited.size > this.#statesMax) return { kind: 'undecided', states: this.#visited.size }
      if (frame.chosen) this.#restore(frame.chosen)
      const next = this.#advance(frame)
      if (next) stack.push(next)
      else stack.pop()
    }
    return { kind: 'violation', states: this.#visited.size }
  }

  /** Orders the next operation that is possible in this state and leads to a new one. */
  #advance(frame: Frame<State, Input, Result>): Frame<State, Input, Result> | undefined {
    frame.chosen = undefined
    while (frame.at < frame.candidates.length) {
      const item = frame.candidates[frame.at++]
      if (!item) break
      const state = this.#model.step(frame.state, item.operation.input, item.operation.result)
      if (state === undefined) continue
      this.#remove(item)
      const key = `${this.#high},${this.#low},${this.#model.keyOf(state)}`
      if (this.#visited.has(key)) {
        this.#restore(item)
        continue
      }
      this.#visited.add(key)
      frame.chosen = item
      return this.#frame(state)
    }
    return undefined
  }

  /**
   * The candidates are the operations before which no other one must come: all that begin before the first end. Completed
   * ones are tried first, in the order of their ends. Of unknown ones with the same effect one that is possible now only
   * is as good as any.
   */
  #frame(state: State): Frame<State, Input, Result> {
    const [completed, unknown]: [Item<Input, Result>[], Item<Input, Result>[]] = [[], []]
    const classes = new Set<string>()
    let firstEndMs = Number.POSITIVE_INFINITY
    for (let item = this.#first; item !== undefined && item.fromMs <= firstEndMs; item = item.next) {
      if (!item.isUnknown) {
        completed.push(item)
        firstEndMs = Math.min(firstEndMs, item.untilMs)
      } else if (item.class === undefined || !classes.has(item.class)) {
        if (item.class !== undefined) classes.add(item.class)
        unknown.push(item)
      }
    }
    const key = this.#model.keyOf(state)
    const unchanging = completed.find((item) => this.#keyAfter(state, item) === key)
    completed.sort((a, b) => a.untilMs - b.untilMs)
    const candidates = unchanging ? [unchanging] : [...completed, ...this.#undominated(state, unknown)]
    return { state, candidates, at: 0, chosen: undefined }
  }

  #keyAfter(state: State, { operation: { input, result } }: Item<Input, Result>): string | undefined {
    const after = this.#model.step(state, input, result)
    return after === undefined ? undefined : this.#model.keyOf(after)
  }

  #undominated(state: State, unknown: readonly Item<Input, Result>[]): readonly Item<Input, Result>[] {
    const possible = unknown.flatMap((item) => {
      const key = this.#keyAfter(state, item)
      return key === undefined ? [] : [{ item, key }]
    })
    return [...Map.groupBy(possible, ({ key }) => key).values()].flatMap((same) => {
      const best = same.find(({ item }) => this.#model.isNowOrNever(item.operation.input))
      return (best ? [best] : same).map(({ item }) => item)
    })
  }

  #remove(item: Item<Input, Result>): void {
    if (item.previous) item.previous.next = item.next
    else this.#first = item.next
    if (item.next) item.next.previous = item.previous
    this.#count(item, -1)
  }

  /** Operations are restored in the reverse order of their removal, so the links of `item` are still right. */
  #restore(item: Item<Input, Result>): void {
    if (item.previous) item.previous.next = item
    else this.#first = item
    if (item.next) item.next.previous = item
    this.#count(item, 1)
  }

  #count(item: Item<Input, Result>, by: number): void {
    this.#high ^= item.high
    this.#low ^= item.low
    if (!item.isUnknown) this.#missing += by
  }
}
