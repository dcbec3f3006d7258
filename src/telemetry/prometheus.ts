/**
 * The Prometheus form of metrics. prom-client validates names and writes the text; values come from the families. Loaded with
 * the first scrape.
 *
 * Established names are kept even if they end like names of another kind (`_total`, `_count`); those families are `untyped`.
 */
import { Gauge, Registry } from 'prom-client'
import { type CommonLabels, type DistributionFamily, type Family, type Labels, labelsOf } from './metric.ts'

type NamedFamily = Family<string> | DistributionFamily<string>

interface PrometheusValue {
  readonly metricName: string
  readonly labels: Labels
  readonly value: number
}

/** A metric of prom-client with external type and values. */
class ExternalMetric extends Gauge {
  readonly type: string
  readonly #values: readonly PrometheusValue[]

  constructor(options: { name: string; help: string; type: string; values: readonly PrometheusValue[] }) {
    super({ name: options.name, help: options.help, registers: [] })
    this.type = options.type
    this.#values = options.values
  }

  override async get() {
    return { ...(await super.get()), values: [...this.#values] }
  }
}

/** Families without points are omitted. */
export async function prometheusText(families: Iterable<NamedFamily>, common: CommonLabels): Promise<string> {
  const registry = new Registry()
  for (const family of families) {
    if (family.points.length === 0) continue
    const { name, type } = nameAndType(family)
    const values = family.points.flatMap(({ value, labels }) => {
      const all = labelsOf(family.name, labels, common)
      if (typeof value === 'number') return [{ metricName: name, labels: all, value }]
      return distribution(name, all, value)
    })
    registry.registerMetric(new ExternalMetric({ name, type, help: family.help, values }))
  }
  return registry.metrics()
}

function nameAndType({ name: dotted, kind }: NamedFamily): { name: string; type: string } {
  const name = dotted.replaceAll(/[^A-Za-z0-9_]/g, '_')
  if (kind === 'counter') return { name: name.endsWith('_total') ? name : `${name}_total`, type: kind }
  const looksOtherwise = kind === 'gauge' && /_(total|count|sum|bucket)$/.test(name)
  return { name, type: looksOtherwise ? 'untyped' : kind }
}

function distribution(
  name: string,
  labels: Labels,
  value: Exclude<NamedFamily['points'][number]['value'], number>,
): PrometheusValue[] {
  const buckets = value.buckets && [
    ...value.buckets.map(({ upTo, count }) => ({ le: String(upTo), count })),
    { le: '+Inf', count: value.count },
  ]
  return [
    ...(buckets ?? []).map(({ le, count }) => ({
      metricName: `${name}_bucket`,
      labels: { ...labels, le },
      value: count,
    })),
    { metricName: `${name}_sum`, labels, value: value.sum },
    { metricName: `${name}_count`, labels, value: value.count },
  ]
}
