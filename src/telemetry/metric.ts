/**
 * Metric families: one name, kind and help text, with a point for each combination of labels. Names are dotted as in the
 * JSON form; the Prometheus form replaces dots by underscores.
 */
import type { MetricName } from './metric-docs.ts'

export type Labels = Readonly<Record<string, string>>

export interface Point {
  readonly value: number
  readonly labels?: Labels
}

export interface Family<Name extends string = MetricName> {
  /** With its prefix: `nomad.client.uptime`, `outpost.followers`. Counters without `total`. Described in `metric-docs.ts`. */
  readonly name: Name
  /** A counter never decreases while the process runs. */
  readonly kind: 'gauge' | 'counter'
  readonly help: string
  readonly points: readonly Point[]
}

/** Distribution of durations or sizes since the start. */
export interface Distribution {
  readonly count: number
  readonly sum: number
  /** Number of values up to each of these bounds; absent for a plain summary. */
  readonly buckets?: readonly { readonly upTo: number; readonly count: number }[]
}

/** A counter of a secrets engine, which names it itself. */
export interface EngineFamily extends Family<string> {
  readonly isOfEngine: true
}

export interface DistributionFamily<Name extends string = MetricName> {
  readonly name: Name
  readonly kind: 'histogram' | 'summary'
  readonly help: string
  readonly points: readonly {
    readonly value: Distribution
    readonly labels?: Labels
    /** Values since the last `take`, for the JSON form. */
    readonly recent?: { readonly count: number; take(): IntervalSummary }
  }[]
}

/** Values of one interval, with the names of the JSON form. */
export interface IntervalSummary {
  readonly Count: number
  readonly Max: number
  readonly Mean: number
  readonly Min: number
  readonly Stddev: number
  readonly Sum: number
}

export type AnyFamily = Family | EngineFamily | DistributionFamily

/** A family of a single point. */
export function single(kind: Family['kind'], name: MetricName, help: string, value: number, labels?: Labels): Family {
  return { kind, name, help, points: [labels ? { value, labels } : { value }] }
}

/** Labels of all series, and those of the node's series only. */
export interface CommonLabels {
  readonly all: Labels
  readonly node: Labels
}

/** Series of allocations have the allocation's labels in place of the node's, as in Nomad. */
const ALLOCATION = 'nomad.client.allocs.'
const NODE = 'nomad.client.'

export function labelsOf(name: string, labels: Labels | undefined, common: CommonLabels): Labels {
  const node = name.startsWith(NODE) && !name.startsWith(ALLOCATION)
  return { ...common.all, ...(node ? common.node : {}), ...labels }
}

/** `telemetry.prefix_filter`: the longest matching prefix decides. */
export interface NameFilter {
  /** Each starts with `+` or `-`. */
  readonly prefixes: readonly string[]
  /** Decision for a name without a matching prefix. */
  readonly otherwise: boolean
}

export function isIncluded(name: string, { prefixes, otherwise }: NameFilter): boolean {
  let longest = ''
  for (const prefix of prefixes) {
    if (name.startsWith(prefix.slice(1)) && prefix.length > longest.length) longest = prefix
  }
  return longest === '' ? otherwise : longest.startsWith('+')
}
