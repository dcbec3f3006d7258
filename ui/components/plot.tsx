/** A plot of values over time, drawn by uPlot, which is loaded when the first plot is shown. */
import { useEffect, useRef, useState } from 'preact/hooks'
import type { AlignedData, Options } from 'uplot'
import type uPlot from 'uplot'
import { formatExact } from './format.tsx'
import { useMedia } from './media.ts'
import { type PlotData, shownTimes } from './plot-times.ts'

export interface PlotLine {
  readonly name: string
  /** A custom property of the style sheet, such as `--accent`. */
  readonly color: string
}

interface PlotProps {
  readonly title: string
  readonly lines: readonly PlotLine[]
  readonly data: PlotData
  /** Changes with the data. */
  readonly revision: number
  readonly format: (value: number) => string
  /** The top of the scale; default: the largest value. */
  readonly max?: number
  /** The top of the scale of smaller values. Default: 1. */
  readonly topMin?: number
  /** Plots with the same key show the same time under the pointer. */
  readonly syncKey: string
  readonly isSmall?: boolean
}

const HEIGHT_PX = 140
const SMALL_HEIGHT_PX = 84
const AXIS_PX = 62
const AXIS_FONT = '11px system-ui, sans-serif'
/** uPlot draws at most this share above the largest value. */
const HEADROOM = 1.1

/** Local time of day. */
function clockTime(seconds: number): string {
  return formatExact(seconds * 1000).slice('2026-01-01 '.length)
}

interface PlotColors {
  readonly lines: readonly string[]
  readonly text: string
  readonly grid: string
}

function colorsOf(element: Element, lines: readonly PlotLine[]): PlotColors {
  const style = getComputedStyle(element)
  const color = (name: string) => style.getPropertyValue(name).trim()
  return { lines: lines.map((line) => color(line.color)), text: color('--muted'), grid: color('--border') }
}

function optionsOf(props: PlotProps, element: HTMLElement, onCursor: (index: number | undefined) => void): Options {
  const { format, isSmall, lines, max, syncKey, topMin = 1 } = props
  const colors = colorsOf(element, lines)
  const axis = { stroke: colors.text, font: AXIS_FONT, grid: { stroke: colors.grid, width: 1 }, ticks: { show: false } }
  return {
    width: element.clientWidth,
    height: isSmall ? SMALL_HEIGHT_PX : HEIGHT_PX,
    legend: { show: false },
    cursor: { sync: { key: syncKey }, y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: {
      x: { range: ({ data: [times] }) => shownTimes(times) },
      y: { range: (_plot, _low, high) => [0, max ?? Math.max(high * HEADROOM, topMin)] },
    },
    axes: [
      { ...axis, size: 24, space: 80, values: (_plot, seconds) => seconds.map(clockTime) },
      { ...axis, size: AXIS_PX, space: isSmall ? 28 : 36, values: (_plot, values) => values.map(format) },
    ],
    series: [
      {},
      ...lines.map(({ name }, index) => ({
        label: name,
        stroke: colors.lines[index] ?? colors.text,
        width: 1.5,
        points: { show: false },
      })),
    ],
    hooks: { setCursor: [({ cursor }) => onCursor(cursor.idx ?? undefined)] },
  }
}

/** uPlot does not change its data. */
function aligned(data: PlotData): AlignedData {
  const [times, ...lines] = data
  return [[...times], ...lines.map((line) => [...line])]
}

export function Plot(props: PlotProps) {
  const { data, format, isSmall, lines, revision, title } = props
  const element = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const current = useRef(props)
  current.current = props
  const [cursor, setCursor] = useState<number>()
  const [error, setError] = useState<string>()
  const isDark = useMedia('(prefers-color-scheme: dark)')
  const names = lines.map(({ name }) => name).join('\0')

  useEffect(() => {
    let isClosed = false
    let observer: ResizeObserver | undefined
    const draw = async () => {
      const { default: UPlot } = await import('uplot')
      const parent = element.current
      if (isClosed || !parent) return
      const made = new UPlot(optionsOf(current.current, parent, setCursor), aligned(current.current.data), parent)
      plot.current = made
      observer = new ResizeObserver(() => made.setSize({ width: parent.clientWidth, height: made.height }))
      observer.observe(parent)
    }
    draw().catch((failure: unknown) => setError(`The plot could not be drawn: ${String(failure)}`))
    return () => {
      isClosed = true
      observer?.disconnect()
      plot.current?.destroy()
      plot.current = undefined
    }
  }, [isDark, names, isSmall])
  useEffect(() => plot.current?.setData(aligned(data)), [revision])

  const [times, ...values] = data
  const at = cursor !== undefined && cursor < times.length ? cursor : times.length - 1
  const texts = lines.map(({ color, name }, index) => {
    const value = values[index]?.[at]
    return { name, color, text: value === undefined || value === null ? '–' : format(value) }
  })
  const summary = texts.map(({ name, text }) => `${name} ${text}`).join(', ')
  return (
    <figure class={isSmall ? 'plot plot-small' : 'plot'}>
      <figcaption>
        <span class="plot-title">{title}</span>
        {texts.map(({ color, name, text }) => (
          <span key={name} class="plot-value">
            <span class="plot-mark" style={{ background: `var(${color})` }} aria-hidden="true" />
            <span>{name}</span> <strong>{text}</strong>
          </span>
        ))}
      </figcaption>
      {error === undefined ? (
        <div class="plot-area" ref={element} role="img" aria-label={`${title}: ${summary}`} />
      ) : (
        <p class="error">{error}</p>
      )}
    </figure>
  )
}
