/** Differences between versions of a secret, and the merge of two changes of the same version. Keys of the top level are compared. */
import type { SecretData } from '../secret-data.ts'

export interface KeyChange {
  readonly key: string
  readonly change: 'added' | 'removed' | 'changed'
  /** Undefined if the key was added. */
  readonly before: unknown
  /** Undefined if the key was removed. */
  readonly after: unknown
}

/** Values are equal if their JSON is: 1.0 differs from 1. */
export function isSameValue(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

export function isSameData(one: SecretData, other: SecretData): boolean {
  return changesOf(one, other).length === 0
}

function memberOf(data: SecretData, key: string): unknown {
  return Object.hasOwn(data, key) ? data[key] : undefined
}

function keysOf(...all: readonly SecretData[]): readonly string[] {
  return [...new Set(all.flatMap((data) => Object.keys(data)))]
}

/** The keys that differ, in the order of the earlier version; new ones last. */
export function changesOf(before: SecretData, after: SecretData): readonly KeyChange[] {
  return keysOf(before, after).flatMap((key): KeyChange[] => {
    const [old, next] = [memberOf(before, key), memberOf(after, key)]
    if (isSameValue(old, next)) return []
    const change = !Object.hasOwn(before, key) ? 'added' : !Object.hasOwn(after, key) ? 'removed' : 'changed'
    return [{ key, change, before: old, after: next }]
  })
}

/** Such as "2 changed, 1 added". */
export function summaryOf(changes: readonly KeyChange[]): string {
  if (changes.length === 0) return 'no differences'
  const count = (kind: KeyChange['change']) => changes.filter(({ change }) => change === kind).length
  const kinds = (['changed', 'added', 'removed'] as const).filter((kind) => count(kind) > 0)
  return kinds.map((kind) => `${count(kind)} ${kind}`).join(', ')
}

export type Side = 'mine' | 'theirs'

/** A key that at least one of the two changes differs in. */
export interface MergeRow {
  readonly key: string
  /** Undefined where the key is absent. */
  readonly base: unknown
  readonly mine: unknown
  readonly theirs: unknown
  /** Which change differs from the base. `both`: in different ways, so one must be chosen. `same`: both in the same way. */
  readonly changedBy: Side | 'both' | 'same'
}

/** Compares two changes of the same version. */
export function mergeRows(base: SecretData, mine: SecretData, theirs: SecretData): readonly MergeRow[] {
  return keysOf(base, mine, theirs).flatMap((key): MergeRow[] => {
    const row = { key, base: memberOf(base, key), mine: memberOf(mine, key), theirs: memberOf(theirs, key) }
    const isMine = !isSameValue(row.base, row.mine)
    const isTheirs = !isSameValue(row.base, row.theirs)
    if (!isMine && !isTheirs) return []
    if (isMine && isTheirs) return [{ ...row, changedBy: isSameValue(row.mine, row.theirs) ? 'same' : 'both' }]
    return [{ ...row, changedBy: isMine ? 'mine' : 'theirs' }]
  })
}

/** The merged data: each key from the side that was chosen, by default from the one that changed it. Undefined until all conflicts are chosen. */
export function mergedData(
  base: SecretData,
  rows: readonly MergeRow[],
  choices: ReadonlyMap<string, Side>,
): SecretData | undefined {
  const merged = new Map(Object.entries(base))
  for (const row of rows) {
    const side = choices.get(row.key) ?? (row.changedBy === 'both' ? undefined : row.changedBy)
    if (side === undefined) return undefined
    const value = side === 'theirs' ? row.theirs : row.mine
    if (value === undefined) merged.delete(row.key)
    else merged.set(row.key, value)
  }
  return Object.fromEntries(merged)
}
