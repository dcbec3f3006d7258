/** Mutants of "Reading files". */
import type { Mutant } from '../mutant-list.ts'

export const MUTANTS: readonly Mutant[] = [
  {
    promise: 'is refused (403) where a secret',
    before: 'return stat.nlink > 1n && new',
    after: 'return stat.nlink > 2n && new',
    test: 'test/host/files/beneath.test.ts',
  },
]
