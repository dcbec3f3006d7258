/** The columns of the list of hosts. */
import type { Column, Sorting } from '../../components/data-table.tsx'
import { formatBytes, Time } from '../../components/format.tsx'
import { visibleText } from '../../app/invisible-characters.ts'
import { mayReadJobs } from '../../app/session.ts'
import type { HostStub } from './host-filter.ts'
import { HostStatus } from './host-status.tsx'
import type { Poller } from './poller.ts'
import type { HostUsage } from './usage.ts'
import { UsageBar } from './usage-bar.tsx'

export interface HostPollers {
  readonly usage: Poller<HostUsage>
  readonly counts: Poller<number>
}

/** A column with its name in the query. */
export interface HostColumn extends Column<HostStub> {
  readonly id: string
  /** Its values are measured. */
  readonly isLive?: boolean
  /** Shown on narrow screens. */
  readonly isMain?: boolean
}

function addressOrder(address: string): string {
  return address.replaceAll(/\d+/g, (digits) => digits.padStart(3, '0'))
}

/** `hasLate`: a host of the list has a late heartbeat, which needs space. */
export function hostColumns({ counts, usage }: HostPollers, hasLate: boolean): readonly HostColumn[] {
  // A host that is not ready is not read: its last reading is no longer its use.
  const usageOf = ({ ID, Status }: HostStub) => (Status === 'ready' ? usage.reading(ID)?.value : undefined)
  const live = (
    id: string,
    title: string,
    of: (found: HostUsage) => { readonly percent: number; readonly title: string },
  ): HostColumn => ({
    id,
    title,
    width: '96px',
    isNumber: true,
    isLive: true,
    isDescendingFirst: true,
    order: (host) => {
      const found = usageOf(host)
      return found ? of(found).percent : -1
    },
    cell: (host) => {
      const found = usageOf(host)
      const text = found ? of(found).title : usage.reading(host.ID)?.error?.message
      return <UsageBar percent={found && of(found).percent} title={text} isLimit={id !== 'cpu'} />
    },
  })
  const disk = live('disk', 'Disk', ({ fullest }) => ({
    percent: fullest.percent,
    title: `${visibleText(fullest.name)}: ${formatBytes(fullest.used)} of ${formatBytes(fullest.size)}`,
  }))
  return [
    {
      id: 'name',
      title: 'Name',
      width: 'minmax(80px, 2fr)',
      isMain: true,
      order: ({ Name }) => Name,
      cell: ({ Name }) => <bdi>{visibleText(Name)}</bdi>,
    },
    {
      id: 'status',
      title: 'Status',
      width: hasLate ? 'minmax(104px, 176px)' : '104px',
      isMain: true,
      order: ({ Status }) => Status,
      cell: (host) => (
        <span title={visibleText(host.StatusDescription)}>
          <HostStatus {...host} />
        </span>
      ),
    },
    {
      id: 'since',
      title: 'Since',
      width: '90px',
      order: ({ StatusUpdatedAt = 0 }) => StatusUpdatedAt,
      cell: ({ StatusUpdatedAt = 0 }) => <Time at={StatusUpdatedAt * 1000} />,
    },
    {
      id: 'address',
      title: 'Address',
      width: 'minmax(104px, 1fr)',
      order: ({ Address }) => addressOrder(Address),
      cell: ({ Address }) => visibleText(Address),
    },
    {
      id: 'class',
      title: 'Class',
      order: ({ NodeClass }) => NodeClass,
      cell: ({ NodeClass }) => (NodeClass === '' ? <span class="muted">–</span> : <bdi>{visibleText(NodeClass)}</bdi>),
    },
    {
      id: 'version',
      title: 'Version',
      width: '68px',
      order: ({ Version }) => Version,
      cell: ({ Version }) => visibleText(Version),
    },
    {
      id: 'allocations',
      title: 'Allocations',
      width: '76px',
      isNumber: true,
      cell: ({ ID, Status }) => {
        const count = Status === 'ready' ? counts.reading(ID)?.value : undefined
        // The server counts only what the token may see.
        return count === undefined || (count === 0 && !mayReadJobs.value) ? (
          <span class="muted" title={mayReadJobs.value ? undefined : 'Your token may not read jobs'}>
            –
          </span>
        ) : (
          count
        )
      },
    },
    live('cpu', 'CPU', ({ cpuPercent }) => ({ percent: cpuPercent, title: 'All processors' })),
    live('memory', 'Memory', ({ memoryPercent, memoryTotal, memoryUsed }) => ({
      percent: memoryPercent,
      title: `${formatBytes(memoryUsed)} of ${formatBytes(memoryTotal)}`,
    })),
    { ...disk, isMain: true },
  ]
}

/** `disk` is ascending, `-disk` is descending. */
export function sortingOf(text: string | null, columns: readonly HostColumn[]): Sorting | undefined {
  const isDescending = text?.startsWith('-') === true
  const column = columns.findIndex(({ id }) => id === (isDescending ? text?.slice(1) : text))
  return column < 0 ? undefined : { column, isDescending }
}
