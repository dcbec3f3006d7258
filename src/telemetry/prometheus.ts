/**
 * The text form of metrics. prom-client checks the names and writes the text; the values are ours, read when they are
 * asked for. Its module is loaded with this one, at the first scrape.
 *
 * Names are kept that others have dashboards for, also where they end like names of another kind: those families are
 * `untyped`, which says nothing wrong to anybody.
 */
import { Gauge, Registry } from 'prom-client'
import { type AnyFamily, type CommonLabels, type Labels, labelsOf } from './metric.ts'

interface Written {
  readonly metricName: string
  readonly labels: Labels
  readonly value: number
}

/** prom-client's simplest kind, with a type and values given from outside. */
class GivenFamily extends Gauge {
  readonly type: string
  readonly #values: readonly Written[]

  constructor(options: { name: string; help: string; type: string; values: readonly Written[] }) {
    super({ name: options.name, help: options.help, registers: [] })
    this.type = options.type
    this.#values = options.values
  }

  override async get() {
    return { ...(await super.get()), values: [...this.#values] }
  }
}

/** Families without any point are left out. */
export async function prometheusText(families: Iterable<AnyFamily>, common: CommonLabels): Promise<string> {
  const registry = new Registry()
  for (const family of families) {
    if (family.points.length === 0) continue
    const { name, type } = written(family)
    const values = family.points.flatMap(({ value, labels }) => {
      const all = labelsOf(family.name, labels, common)
      if (typeof value === 'number') return [{ metricName: name, labels: all, value }]
      return distribution(name, all, value)
    })
    registry.registerMetric(new GivenFamily({ name, type, help: family.help, values }))
  }
  return registry.metrics()
}

function written({ name: dotted, kind }: AnyFamily): { name: string; type: string } {
  const name = dotted.replaceAll(/[^A-Za-z0-9_]/g, '_')
  if (kind === 'counter') return { name: name.endsWith('_total') ? name : `${name}_total`, type: kind }
  const looksOtherwise = kind === 'gauge' && /_(total|count|sum|bucket)$/.test(name)
  return { name, type: looksOtherwise ? 'untyped' : kind }
}

function distribution(
  name: string,
  labels: Labels,
  value: Exclude<AnyFamily['points'][number]['value'], number>,
): Written[] {
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
