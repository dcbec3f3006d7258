import { useEffect, useRef, useState } from 'preact/hooks'
import type { AlignedData, Options } from 'uplot'
import type uPlot from 'uplot'
import { shownTimes } from '../../components/plot-times.ts'
import type { LagHistory, LagSeries } from './lag-history.ts'

const HEIGHT_PX = 160
const COLORS = ['--accent', '--ansi-magenta', '--ansi-cyan', '--ansi-yellow', '--ansi-green', '--ansi-red']

interface LagChartProps {
  readonly history: LagHistory
  /** Changes with the history. */
  readonly revision: number
  readonly isPrimary: boolean
}

/** The lag in entries while the page is open. uPlot is loaded when the chart is shown. */
export function LagChart({ history, isPrimary, revision }: LagChartProps) {
  const element = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const [error, setError] = useState<string>()
  const { data, names } = history.series
  const key = names.join('\0')
  useEffect(() => {
    let isClosed = false
    let observer: ResizeObserver | undefined
    const draw = async () => {
      const { default: UPlot } = await import('uplot')
      const parent = element.current
      if (isClosed || !parent) return
      const { series } = history
      const made = new UPlot(optionsOf(series, parent), aligned(series), parent)
      plot.current = made
      observer = new ResizeObserver(() => made.setSize({ width: parent.clientWidth, height: HEIGHT_PX }))
      observer.observe(parent)
    }
    draw().catch((failure: unknown) => setError(`The chart could not be drawn: ${String(failure)}`))
    return () => {
      isClosed = true
      observer?.disconnect()
      plot.current?.destroy()
      plot.current = undefined
    }
  }, [key])
  useEffect(() => plot.current?.setData(aligned(history.series)), [revision])
  const latest = names.map((name, index) => `${name}: ${data[index + 1]?.at(-1) ?? 'unknown'}`).join(', ')
  return (
    <section class="card">
      <h2>Lag in entries</h2>
      <p class="hint">
        {isPrimary ? 'Of each secondary' : 'Behind the primary'}, since this page was opened. Now: {latest}
      </p>
      {error === undefined ? (
        <div ref={element} class="lag-chart" role="img" aria-label={`Lag in entries over time. Now: ${latest}`} />
      ) : (
        <p class="error">{error}</p>
      )}
    </section>
  )
}

/** uPlot does not change its data. */
function aligned({ data: [times, ...lines] }: LagSeries): AlignedData {
  return [[...times], ...lines.map((line) => [...line])]
}

function optionsOf({ names }: LagSeries, element: HTMLElement): Options {
  const style = getComputedStyle(element)
  const color = (name: string) => style.getPropertyValue(name).trim()
  const axis = { stroke: color('--muted'), grid: { stroke: color('--border'), width: 1 }, ticks: { show: false } }
  return {
    width: element.clientWidth,
    height: HEIGHT_PX,
    legend: { show: names.length > 1 },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: {
      x: { range: ({ data: [times] }) => shownTimes(times) },
      y: { range: (_plot, _low, high) => [0, Math.max(high * 1.1, 5)] },
    },
    axes: [axis, { ...axis, size: 60 }],
    series: [
      {},
      ...names.map((label, index) => ({
        label,
        stroke: color(COLORS[index % COLORS.length] ?? '--accent'),
        width: 1.5,
        spanGaps: false,
      })),
    ],
  }
}
