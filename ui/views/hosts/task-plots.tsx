/** Live plots of the tasks of running allocations. Only those on the screen are measured. */
import { useMemo, useState } from 'preact/hooks'
import { read } from '../../api/client.ts'
import type { ServerNodeAllocations } from '../../api/types.ts'
import { pathOf } from '../../app/location.ts'
import { Button } from '../../components/button.tsx'
import { formatBytes } from '../../components/format.tsx'
import { Link } from '../../components/link.tsx'
import { visibleText } from '../../app/invisible-characters.ts'
import { formatPercent } from './host-plots.tsx'
import { Plot, type PlotLine } from '../../components/plot.tsx'
import { newSeries, useOnScreen, useSamples } from './sampling.ts'
import type { TimeSeries } from './series.ts'
import { type TaskUsage, taskUsages } from './usage.ts'

type Allocation = ServerNodeAllocations[number]

const FIRST_SHOWN = 6
const LINES: readonly PlotLine[] = [{ name: 'used', color: '--accent' }]

export function TaskPlots({ allocations }: { readonly allocations: readonly Allocation[] }) {
  const [areAllShown, showAll] = useState(false)
  const running = allocations.filter(({ ClientStatus }) => ClientStatus === 'running')
  const shown = areAllShown ? running : running.slice(0, FIRST_SHOWN)
  if (running.length === 0) return <p class="muted">No allocation runs on this host.</p>
  return (
    <>
      {shown.map((allocation) => (
        <AllocationPlots key={allocation.ID} allocation={allocation} />
      ))}
      {shown.length < running.length && (
        <div>
          <Button onClick={() => showAll(true)}>Show all {running.length} running allocations</Button>
        </div>
      )}
    </>
  )
}

interface TaskSeries {
  readonly cpu: TimeSeries
  readonly memory: TimeSeries
}

function AllocationPlots({ allocation: { ID, Name, TaskStates } }: { readonly allocation: Allocation }) {
  const [element, isOnScreen] = useOnScreen()
  const series = useMemo(() => new Map<string, TaskSeries>(), [ID])
  const take = (usages: ReadonlyMap<string, TaskUsage>) => {
    const atSeconds = Date.now() / 1000
    for (const [task, { cpuPercent, memoryBytes }] of usages) {
      const known = series.get(task) ?? { cpu: newSeries(1), memory: newSeries(1) }
      series.set(task, known)
      known.cpu.add(atSeconds, [cpuPercent])
      known.memory.add(atSeconds, [memoryBytes])
    }
  }
  const readTasks = async (signal: AbortSignal) =>
    taskUsages(await read('/v1/client/allocation/{alloc_id}/stats', { params: { alloc_id: ID }, signal }))
  const { error, revision } = useSamples(readTasks, take, { isActive: isOnScreen, key: ID })
  const tasks = series.size > 0 ? [...series.keys()] : Object.keys(TaskStates ?? {})
  return (
    <section class="task-plots" ref={element} aria-label={`Tasks of ${visibleText(Name)}`}>
      {error && series.size === 0 && <p class="error">{error.message}</p>}
      {tasks.map((task) => (
        <div key={task} class="task-plot">
          <h3>
            <Link to={pathOf('logs', ID, task)}>
              <bdi>{visibleText(task)}</bdi>
            </Link>{' '}
            <span class="muted">
              <bdi>{visibleText(Name)}</bdi>
            </span>
          </h3>
          <TaskChartPair series={series.get(task)} syncKey={ID} revision={revision} />
        </div>
      ))}
    </section>
  )
}

interface TaskChartPairProps {
  readonly series: TaskSeries | undefined
  readonly syncKey: string
  readonly revision: number
}

function TaskChartPair({ revision, series, syncKey }: TaskChartPairProps) {
  if (!series) {
    return <p class="task-plots-empty muted">{revision > 0 && 'The host knows no process of this task to measure.'}</p>
  }
  const common = { lines: LINES, revision, syncKey, isSmall: true }
  return (
    <div class="plots">
      <Plot {...common} title="CPU" data={series.cpu.data} format={formatPercent} />
      <Plot {...common} title="Memory" data={series.memory.data} format={formatBytes} />
    </div>
  )
}
