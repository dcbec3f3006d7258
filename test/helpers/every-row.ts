/** Limits of `rowsAfter` that return the whole log. */
import type { RowLimits } from '../../src/storage/store/replica.ts'

export const EVERY_ROW: RowLimits = { rows: 1_000_000, bytes: 1 << 30 }
