/** Operations of concurrent clients with their times and results, as the checker reads them. */

export interface Operation<Input = unknown, Result = unknown> {
  readonly id: number
  readonly client: string
  /** The server that was asked. */
  readonly server: string
  /** What the operation is about: operations with different objects are checked independently. */
  readonly object: string
  readonly input: Input
  /** Monotonic times of the recording process. */
  readonly invokedMs: number
  /** Infinity if the outcome is unknown: the operation may take effect at any later time, or never. */
  readonly respondedMs: number
  /** Undefined if the outcome is unknown. */
  readonly result: Result | undefined
  /** The age that a read permits: it may return a state that was current up to this time before its invocation. */
  readonly maxAgeMs?: number
  /** Why the outcome is unknown, for reports. */
  readonly note?: string
}

/** The beginning of the interval in which an operation takes effect. */
export function effectiveFromMs({ invokedMs, maxAgeMs = 0 }: Operation): number {
  return invokedMs - maxAgeMs
}

export interface Invocation<Input> {
  readonly client: string
  readonly server: string
  readonly object: string
  readonly input: Input
  readonly maxAgeMs?: number
}

/** How an invocation ended. */
export interface OpenOperation<Result> {
  /** With a result, which can be a refusal that says something about the state, such as a mismatch of cas. */
  completed(result: Result): void
  /** It certainly had no effect, and says nothing about the state. */
  hadNoEffect(): void
  /** It may have an effect now, later, or never. */
  unknown(note: string): void
}

/** Records the operations of one kind, such as all registers. */
export class History<Input, Result> {
  readonly #operations: Operation<Input, Result>[] = []
  readonly #open = new Set<() => void>()
  readonly #nowMs: () => number
  #next = 0

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
  }

  begin(invocation: Invocation<Input>): OpenOperation<Result> {
    const id = this.#next++
    const invokedMs = this.#nowMs()
    let isOpen = true
    const end = (more: Pick<Operation<Input, Result>, 'respondedMs' | 'result' | 'note'> | undefined) => {
      if (!isOpen) throw new Error(`operation ${id} ended twice`)
      isOpen = false
      this.#open.delete(abandon)
      if (more) this.#operations.push({ id, invokedMs, ...invocation, ...more })
    }
    const unknown = (note: string) => end({ respondedMs: Number.POSITIVE_INFINITY, result: undefined, note })
    const abandon = () => unknown('no answer before the end')
    this.#open.add(abandon)
    return {
      completed: (result) => end({ respondedMs: this.#nowMs(), result }),
      hadNoEffect: () => end(undefined),
      unknown,
    }
  }

  /** All operations; those without an answer so far have an unknown outcome. */
  finish(): readonly Operation<Input, Result>[] {
    for (const abandon of this.#open) abandon()
    return this.#operations.toSorted((a, b) => a.invokedMs - b.invokedMs || a.id - b.id)
  }
}
