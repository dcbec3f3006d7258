/** A counter: an addition returns the new value. */
import { checkerOf, type HistoryKind } from './history-kind.ts'
import type { Model } from './linearizability.ts'

export interface CounterInput {
  readonly kind: 'read' | 'add'
}

export interface CounterResult {
  readonly value: number
}

type CounterModel = Model<number, CounterInput, CounterResult>

const shared = { initial: 0, keyOf: String, classOf: ({ kind }: CounterInput) => kind, isNowOrNever: () => false }

const strict: CounterModel = {
  ...shared,
  mayChange: ({ kind }) => kind === 'add',
  step(value, { kind }, result) {
    const after = kind === 'add' ? value + 1 : value
    return result === undefined || result.value === after ? after : undefined
  },
}

/** The value never falls, and no two additions return the same. */
const partial: CounterModel = {
  ...shared,
  mayChange: () => false,
  step(value, { kind }, result) {
    if (!result) return value
    return result.value > value || (kind === 'read' && result.value === value) ? result.value : undefined
  },
}

export const counter: HistoryKind<CounterInput, CounterResult> = {
  name: 'counter',
  strict: checkerOf(strict),
  partial: checkerOf(partial),
  isObservation: ({ input }) => input.kind === 'read',
  resolve: (operations) => operations,
  describe: ({ input, result }) => `${input.kind} → ${result?.value ?? 'unknown'}`,
}
