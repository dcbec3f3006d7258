/** The allocations of a host, with links to their logs and files. */
import { pathOf } from '../../app/location.ts'
import { Button } from '../../components/button.tsx'
import { type Column, DataTable } from '../../components/data-table.tsx'
import { Badge, Time } from '../../components/format.tsx'
import { Link } from '../../components/link.tsx'
import { NARROW, useMedia } from '../../components/media.ts'
import { visibleText } from '../../app/invisible-characters.ts'
import { type HostAllocation, isEnded } from './gc-rules.ts'
import type { MayInNamespace } from './namespace-permissions.ts'

const ROW_PX = 36
const HEAD_PX = 35
const ROWS_MAX = 12

interface HostAllocationsProps {
  readonly allocations: readonly HostAllocation[]
  readonly may: MayInNamespace
  /** Undefined if the host cannot be asked. */
  readonly collect: ((id: string) => void) | undefined
}

export function HostAllocations({ allocations, collect, may }: HostAllocationsProps) {
  const isNarrow = useMedia(NARROW)
  const columns = columnsOf({ may, collect, isNarrow }).filter((_, index) => !isNarrow || MAIN.has(index))
  if (allocations.length === 0) return <p class="muted">No allocation is known on this host.</p>
  return (
    <div class="bounded" style={{ height: `${Math.min(allocations.length, ROWS_MAX) * ROW_PX + HEAD_PX}px` }}>
      <DataTable label="Allocations" rows={allocations} columns={columns} linkOf={({ ID }) => pathOf('logs', ID)} />
    </div>
  )
}

/** Columns of narrow screens: name, status, actions. */
const MAIN: ReadonlySet<number> = new Set([0, 2, 5])

interface ColumnOptions extends Pick<HostAllocationsProps, 'collect' | 'may'> {
  readonly isNarrow: boolean
}

function columnsOf({ collect, isNarrow, may }: ColumnOptions): readonly Column<HostAllocation>[] {
  return [
    {
      title: 'Allocation',
      width: 'minmax(110px, 2fr)',
      order: ({ Name }) => Name,
      cell: ({ ID, Name }) => <bdi title={ID}>{visibleText(Name === '' ? ID : Name)}</bdi>,
    },
    { title: 'Job', order: ({ JobID }) => JobID, cell: ({ JobID }) => <bdi>{visibleText(JobID)}</bdi> },
    {
      title: 'Status',
      width: '96px',
      order: ({ ClientStatus }) => ClientStatus,
      cell: ({ ClientDescription, ClientStatus }) => (
        <span title={ClientDescription}>
          <Badge state={ClientStatus} />
        </span>
      ),
    },
    {
      title: 'Logs of tasks',
      width: 'minmax(0, 1.5fr)',
      cell: ({ ID, TaskStates }) => (
        <span class="inline-links">
          {Object.keys(TaskStates ?? {}).map((task) => (
            <Link key={task} to={pathOf('logs', ID, task)}>
              <bdi>{visibleText(task)}</bdi>
            </Link>
          ))}
        </span>
      ),
    },
    {
      title: 'Created',
      width: '100px',
      isDescendingFirst: true,
      order: ({ CreateTime }) => CreateTime,
      cell: ({ CreateTime }) => <Time at={CreateTime / 1e6} />,
    },
    {
      title: 'Actions',
      width: isNarrow ? '48px' : '132px',
      cell: (allocation) => (
        <span class="inline-links">
          {may(allocation.Namespace, 'read-fs') && <Link to={pathOf('files', allocation.ID)}>Files</Link>}
          {collect && !isNarrow && isEnded(allocation) && may(allocation.Namespace, 'submit-job', 'gc-allocation') && (
            <Button label={`Collect ${allocation.Name}`} class="button-small" onClick={() => collect(allocation.ID)}>
              Collect
            </Button>
          )}
        </span>
      ),
    },
  ]
}
