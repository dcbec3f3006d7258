import { Plot } from '../../components/plot.tsx'
import type { LagHistory } from './lag-history.ts'

const COLORS = ['--accent', '--ansi-magenta', '--ansi-cyan', '--ansi-yellow', '--ansi-green', '--ansi-red']
/** A lag of a few entries is normal. */
const TOP_MIN = 5

interface LagChartProps {
  readonly history: LagHistory
  /** Changes with the history. */
  readonly revision: number
  readonly isPrimary: boolean
}

/** The lag in entries while the page is open. */
export function LagChart({ history, isPrimary, revision }: LagChartProps) {
  const { data, names } = history.series
  const lines = names.map((name, index) => ({ name, color: COLORS[index % COLORS.length] ?? '--accent' }))
  return (
    <section class="card">
      <h2>Lag</h2>
      <p class="hint">{isPrimary ? 'Of each secondary' : 'Behind the primary'}, since this page was opened.</p>
      <Plot
        title="Lag in entries over time"
        lines={lines}
        data={data}
        revision={revision}
        format={String}
        topMin={TOP_MIN}
        syncKey="lag"
      />
    </section>
  )
}
