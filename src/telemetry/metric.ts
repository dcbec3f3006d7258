/**
 * Figures under the names that others know them by: families of one name, kind and meaning, each with a point for every
 * combination of labels. Names are dotted, as in the JSON form; the text form has them with underscores.
 */

export type Labels = Readonly<Record<string, string>>

export interface Point {
  readonly value: number
  readonly labels?: Labels
}

export interface Family {
  /** With its prefix: `nomad.client.uptime`, `outpost.followers`. A counter's name stands without `total`. */
  readonly name: string
  /** A gauge is a state, a counter only grows until the process ends. */
  readonly kind: 'gauge' | 'counter'
  readonly help: string
  readonly points: readonly Point[]
}

/** How long something took or how large it was, in `unit`s, counted since the start. */
export interface Distribution {
  readonly count: number
  readonly sum: number
  /** Number of values up to each of these bounds; absent for a plain summary. */
  readonly buckets?: readonly { readonly upTo: number; readonly count: number }[]
}

export interface DistributionFamily {
  readonly name: string
  readonly kind: 'histogram' | 'summary'
  readonly help: string
  readonly points: readonly {
    readonly value: Distribution
    readonly labels?: Labels
    /** What came in since it was taken last, for the JSON form, which shows one interval. */
    readonly recent?: { readonly count: number; take(): Taken }
  }[]
}

/** Values of one interval, in the words of the JSON form. */
export interface Taken {
  readonly Count: number
  readonly Max: number
  readonly Mean: number
  readonly Min: number
  readonly Stddev: number
  readonly Sum: number
}

export type AnyFamily = Family | DistributionFamily

/** A family of a single point. */
export function single(kind: Family['kind'], name: string, help: string, value: number, labels?: Labels): Family {
  return { kind, name, help, points: [labels ? { value, labels } : { value }] }
}

/** Labels that all figures carry, and those that only figures of the node carry. */
export interface CommonLabels {
  readonly all: Labels
  readonly node: Labels
}

/** Figures of single allocations name their allocation instead of the node, as the compatible system's do. */
const ALLOCATION = 'nomad.client.allocs.'
const NODE = 'nomad.client.'

export function labelsOf(name: string, labels: Labels | undefined, common: CommonLabels): Labels {
  const node = name.startsWith(NODE) && !name.startsWith(ALLOCATION)
  return { ...common.all, ...(node ? common.node : {}), ...labels }
}

/** `telemetry.prefix_filter`: of the prefixes that a name begins with, the longest decides. */
export interface NameFilter {
  /** Each with `+` or `-` in front. */
  readonly prefixes: readonly string[]
  /** What happens to a name that none of them fits. */
  readonly otherwise: boolean
}

export function isWanted(name: string, { prefixes, otherwise }: NameFilter): boolean {
  let longest = ''
  for (const prefix of prefixes) {
    if (name.startsWith(prefix.slice(1)) && prefix.length > longest.length) longest = prefix
  }
  return longest === '' ? otherwise : longest.startsWith('+')
}
