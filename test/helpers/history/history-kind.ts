/** A kind of object with its models. */
import { checkLinearizable, type Model, type Verdict } from './linearizability.ts'
import type { Operation } from './operation.ts'

export type Operations<Input, Result> = readonly Operation<Input, Result>[]

export interface HistoryKind<Input, Result> {
  readonly name: string
  /** Completes operations with an unknown outcome whose effect another operation saw. */
  resolve(operations: Operations<Input, Result>): Operations<Input, Result>
  strict(operations: Operations<Input, Result>): Verdict
  /**
   * Permits effects of operations that are not in the history. So a violation of a part of a history is one of the whole
   * history, and few operations show it.
   */
  partial(operations: Operations<Input, Result>): Verdict
  /** True if the operation changes nothing, so that the rest of a linearizable history is linearizable without it. */
  isObservation(operation: Operation<Input, Result>): boolean
  describe(operation: Operation<Input, Result>): string
}

export function checkerOf<State, Input, Result>(model: Model<State, Input, Result>) {
  return (operations: Operations<Input, Result>): Verdict => checkLinearizable(model, operations)
}

/**
 * Completes the operations with an unknown outcome for which `seen` returns a result and the first response that has
 * it. They took effect before that response.
 */
export function resolveSeen<Input, Result>(
  operations: Operations<Input, Result>,
  seen: (operation: Operation<Input, Result>) => { readonly result: Result; readonly byMs: number } | undefined,
): Operations<Input, Result> {
  return operations.map((operation) => {
    const found = operation.result === undefined ? seen(operation) : undefined
    // Seen before its invocation: a violation, which the unknown operation shows.
    if (!found || found.byMs < operation.invokedMs) return operation
    return { ...operation, result: found.result, respondedMs: found.byMs }
  })
}
