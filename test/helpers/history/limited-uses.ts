/** Something that can be used a number of times: a token with `num_uses`, or a wrapping token, once. */
import { checkerOf, type HistoryKind } from './history-kind.ts'
import type { Model } from './linearizability.ts'

export interface UseInput {
  readonly limit: number
}

export type UseResult = 'used' | 'denied'

type UsesModel = Model<number, UseInput, UseResult>

const shared = { initial: 0, keyOf: String, classOf: () => 'use', isNowOrNever: () => false }

const strict: UsesModel = {
  ...shared,
  mayChange: () => true,
  step(uses, { limit }, result) {
    if (result === 'denied') return uses === limit ? uses : undefined
    return uses < limit ? uses + 1 : undefined
  },
}

/** No more uses than the limit. */
const partial: UsesModel = {
  ...strict,
  mayChange: () => false,
  step: (uses, input, result) => (result === 'denied' ? uses : strict.step(uses, input, result)),
}

export const limitedUses: HistoryKind<UseInput, UseResult> = {
  name: 'limited uses',
  strict: checkerOf(strict),
  partial: checkerOf(partial),
  isObservation: ({ result }) => result === 'denied',
  resolve: (operations) => operations,
  describe: ({ input, result }) => `use (limit ${input.limit}) → ${result ?? 'unknown'}`,
}
