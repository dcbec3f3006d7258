/** Live plots of a host: CPU, memory, network, and its file systems. */
import { useMemo } from 'preact/hooks'
import { formatBytes, formatSeconds } from '../../components/format.tsx'
import { ErrorText, Loading } from '../../components/states.tsx'
import { visibleText } from '../../app/invisible-characters.ts'
import { readUsageAndNetwork } from './host-api.ts'
import { Plot, type PlotLine } from '../../components/plot.tsx'
import { newSeries, useSamples } from './sampling.ts'
import { type HostUsage, networkRates, type NetworkCounters } from './usage.ts'
import { UsageBar } from './usage-bar.tsx'

const CPU_LINES: readonly PlotLine[] = [
  { name: 'total', color: '--accent' },
  { name: 'system', color: '--ansi-magenta' },
]
const MEMORY_LINES: readonly PlotLine[] = [{ name: 'used', color: '--accent' }]
const NETWORK_LINES: readonly PlotLine[] = [
  { name: 'received', color: '--accent' },
  { name: 'sent', color: '--ansi-magenta' },
]
/** The scale of an idle network does not show each packet. */
const NETWORK_TOP_MIN = 10 * 1024
const DISK_COLORS = ['--accent', '--ansi-magenta', '--ansi-cyan', '--ansi-yellow', '--ansi-green'] as const

export const formatPercent = (value: number) => `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} %`

const formatRate = (bytesPerSecond: number) => `${formatBytes(bytesPerSecond)}/s`

/** The fullest file systems, by name, so that the lines keep their order. */
function plottedDisks({ fileSystems }: HostUsage): readonly string[] {
  const fullest = fileSystems.toSorted((one, other) => other.percent - one.percent).slice(0, DISK_COLORS.length)
  return fullest.map(({ name }) => name).toSorted()
}

/** Rates between samples of the counters. */
class NetworkSeries {
  readonly series = newSeries(NETWORK_LINES.length)
  #before: { readonly counters: NetworkCounters; readonly atSeconds: number } | undefined

  add(atSeconds: number, counters: NetworkCounters | undefined): void {
    const before = this.#before
    this.#before = counters && { counters, atSeconds }
    if (!before || !counters) return
    const rates = networkRates(before.counters, counters, atSeconds - before.atSeconds)
    this.series.add(atSeconds, [rates?.received ?? null, rates?.sent ?? null])
  }
}

export function HostPlots({ nodeId }: { readonly nodeId: string }) {
  const cpu = useMemo(() => newSeries(CPU_LINES.length), [nodeId])
  const memory = useMemo(() => newSeries(MEMORY_LINES.length), [nodeId])
  const disk = useMemo(() => ({ names: [] as readonly string[], series: newSeries(0) }), [nodeId])
  const network = useMemo(() => new NetworkSeries(), [nodeId])
  const take = (usage: HostUsage) => {
    const atSeconds = Date.now() / 1000
    network.add(atSeconds, usage.network)
    cpu.add(atSeconds, [usage.cpuPercent, usage.systemPercent])
    memory.add(atSeconds, [usage.memoryUsed])
    if (disk.series.length === 0) {
      disk.names = plottedDisks(usage)
      disk.series = newSeries(disk.names.length)
    }
    const percents = new Map(usage.fileSystems.map(({ name, percent }) => [name, percent]))
    disk.series.add(
      atSeconds,
      disk.names.map((name) => percents.get(name) ?? null),
    )
  }
  const { error, latest, revision } = useSamples((signal) => readUsageAndNetwork(nodeId, signal), take, {
    isActive: true,
    key: nodeId,
  })
  if (!latest) return error ? <ErrorText error={error} /> : <Loading label="Measuring" />
  const common = { revision, syncKey: nodeId }
  const diskLines = disk.names.map((name, index) => ({
    name: visibleText(name),
    color: DISK_COLORS[index] ?? '--accent',
  }))
  return (
    <>
      {error && <ErrorText error={error} />}
      <div class="plots">
        <Plot {...common} title="CPU" lines={CPU_LINES} data={cpu.data} max={100} format={formatPercent} />
        <Plot
          {...common}
          title="Memory"
          lines={MEMORY_LINES}
          data={memory.data}
          max={latest.memoryTotal}
          format={formatBytes}
        />
        {latest.network && (
          <Plot
            {...common}
            title="Network"
            lines={NETWORK_LINES}
            data={network.series.data}
            topMin={NETWORK_TOP_MIN}
            format={formatRate}
          />
        )}
        {diskLines.length > 0 && (
          <Plot
            {...common}
            title="Disk use"
            lines={diskLines}
            data={disk.series.data}
            max={100}
            format={formatPercent}
          />
        )}
      </div>
      <FileSystems usage={latest} />
    </>
  )
}

function FileSystems({ usage: { fileSystems, memoryTotal, uptimeSeconds } }: { readonly usage: HostUsage }) {
  return (
    <dl class="facts">
      <dt>Uptime</dt>
      <dd>{formatSeconds(uptimeSeconds)}</dd>
      <dt>Memory</dt>
      <dd>{formatBytes(memoryTotal)}</dd>
      {fileSystems.map(({ name, percent, size, used }) => (
        <>
          <dt key={name}>
            <bdi>{visibleText(name)}</bdi>
          </dt>
          <dd>
            <UsageBar percent={percent} /> {formatBytes(used)} of {formatBytes(size)}
          </dd>
        </>
      ))}
    </dl>
  )
}
