/** Metrics and readiness of a server, read over HTTP. */
import { readExposition, type Series } from './exposition.ts'

export interface ExportedMetrics {
  /** The value of the series with this name and these labels; undefined if there is none. */
  value(name: string, labels?: Readonly<Record<string, string>>): number | undefined
  /** Names of the families in HELP lines. */
  readonly names: readonly string[]
  /** Types of the families in TYPE lines. */
  readonly kinds: ReadonlyMap<string, string>
  /** Names of the labels of each family. */
  readonly labels: ReadonlyMap<string, ReadonlySet<string>>
  readonly faults: readonly string[]
}

export async function metricsOf({ url }: { readonly url: string }): Promise<ExportedMetrics> {
  const text = await (await fetch(`${url}/v1/metrics?format=prometheus`)).text()
  const { faults, series } = readExposition(text)
  const kinds = new Map([...text.matchAll(/^# TYPE (\S+) (\S+)/gm)].map(([, name = '', kind = '']) => [name, kind]))
  return {
    faults,
    names: [...text.matchAll(/^# HELP (\S+)/gm)].map(([, name = '']) => name),
    kinds,
    labels: labelsOf(series, kinds),
    value: (name, labels = {}) =>
      series.find((each) => {
        return each.name === name && Object.entries(labels).every(([key, value]) => each.labels.get(key) === value)
      })?.value,
  }
}

/** The series of a histogram or summary have suffixes. */
function labelsOf(series: readonly Series[], families: ReadonlyMap<string, string>): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>()
  for (const { labels, name } of series) {
    const family = families.has(name) ? name : name.replace(/_(?:sum|count|bucket)$/, '')
    found.set(family, new Set([...(found.get(family) ?? []), ...labels.keys()]))
  }
  return found
}

interface ReadyCheck {
  readonly state: string
  readonly reason: string
  readonly warnings?: readonly string[]
}

export interface Ready {
  readonly status: number
  readonly ready: boolean
  /** By name. */
  readonly checks: Readonly<Record<string, ReadyCheck>>
  readonly warnings: readonly string[]
}

export async function readinessOf({ url }: { readonly url: string }): Promise<Ready> {
  const response = await fetch(`${url}/v1/agent/ready`)
  const told = (await response.json()) as {
    ready: boolean
    checks: (ReadyCheck & { name: string })[]
    warnings: string[]
  }
  const checks = Object.fromEntries(told.checks.map(({ name, ...rest }) => [name, rest]))
  return { status: response.status, ready: told.ready, checks, warnings: told.warnings }
}
