/**
 * Lists to which transactions append: one transaction appends the same unique element to several lists, under the
 * condition that each one is as the client read it before. A read returns several lists at one moment.
 */
import { checkerOf, type HistoryKind, resolveSeen } from './history-kind.ts'
import type { Model } from './linearizability.ts'

/** Lists by their names; the elements are joined with commas. */
export type Lists = Readonly<Record<string, string>>

export type ListsInput =
  | { readonly kind: 'read'; readonly names: readonly string[] }
  | { readonly kind: 'append'; readonly element: string; readonly to: Lists }

export type ListsResult =
  | { readonly kind: 'lists'; readonly lists: Lists }
  | { readonly kind: 'appended' }
  | { readonly kind: 'mismatch' }

type ListsModel = Model<Lists, ListsInput, ListsResult>

export function appended(list: string, element: string): string {
  return list === '' ? element : `${list},${element}`
}

const shared = {
  initial: {},
  keyOf: (lists: Lists) => JSON.stringify(Object.entries(lists).toSorted(([a], [b]) => (a < b ? -1 : 1))),
  classOf: () => undefined,
  isNowOrNever: () => false,
}

function withElement(state: Lists, { element, to }: ListsInput & { readonly kind: 'append' }): Lists {
  const changed = Object.entries(to).map(([name, list]) => [name, appended(list, element)] as const)
  return { ...state, ...Object.fromEntries(changed) }
}

const strict: ListsModel = {
  ...shared,
  mayChange: ({ kind }) => kind === 'append',
  step(state, input, result) {
    const holds = (lists: Lists) => Object.entries(lists).every(([name, list]) => (state[name] ?? '') === list)
    if (input.kind === 'read') return result?.kind === 'lists' && holds(result.lists) ? state : undefined
    if (result?.kind === 'mismatch') return holds(input.to) ? undefined : state
    return holds(input.to) ? withElement(state, input) : undefined
  },
}

/** A list is only extended. */
const partial: ListsModel = {
  ...shared,
  mayChange: () => false,
  step(state, input, result) {
    const extend = (lists: Lists) =>
      Object.entries(lists).every(([name, list]) => {
        const known = state[name] ?? ''
        return known === '' || known === list || list.startsWith(`${known},`)
      })
    if (result?.kind === 'lists') return extend(result.lists) ? { ...state, ...result.lists } : undefined
    if (result?.kind === 'mismatch' || input.kind === 'read') return state
    return extend(input.to) ? withElement(state, input) : undefined
  },
}

const shown = (lists: Lists) =>
  Object.entries(lists)
    .map(([name, list]) => `${name}=[${list}]`)
    .join(' ')

export const lists: HistoryKind<ListsInput, ListsResult> = {
  name: 'lists',
  strict: checkerOf(strict),
  partial: checkerOf(partial),
  isObservation: ({ input, result }) => input.kind === 'read' || result?.kind === 'mismatch',
  resolve(operations) {
    const seenMs = new Map<string, number>()
    for (const { respondedMs, result } of operations) {
      if (result?.kind !== 'lists') continue
      for (const element of Object.values(result.lists).flatMap((list) => list.split(','))) {
        seenMs.set(element, Math.min(respondedMs, seenMs.get(element) ?? Number.POSITIVE_INFINITY))
      }
    }
    return resolveSeen(operations, ({ input }) => {
      const byMs = input.kind === 'append' ? seenMs.get(input.element) : undefined
      return byMs === undefined ? undefined : { result: { kind: 'appended' }, byMs }
    })
  },
  describe({ input, result }) {
    const what =
      input.kind === 'read' ? `read ${input.names.join(' ')}` : `append ${input.element} to ${shown(input.to)}`
    return `${what} → ${result?.kind === 'lists' ? shown(result.lists) : (result?.kind ?? 'unknown')}`
  },
}
