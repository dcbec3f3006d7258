/** All hosts: search, status, and their use of CPU, memory and disk. */
import { useEffect, useMemo, useState } from 'preact/hooks'
import { isRefusal } from '../../api/client.ts'
import { address, pathOf, setQuery } from '../../app/location.ts'
import { useCommands } from '../../app/palette.tsx'
import { useResource } from '../../app/resource.ts'
import { Button } from '../../components/button.tsx'
import { DataTable, type Sorting } from '../../components/data-table.tsx'
import { Field } from '../../components/field.tsx'
import { NARROW, useMedia } from '../../components/media.ts'
import { Empty, Loaded } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { countAllocations, loadHosts, readUsage } from './host-api.ts'
import { type HostPollers, hostColumns, sortingOf } from './host-columns.tsx'
import { countStatuses, filterHosts, type HostStub, parseSearch } from './host-filter.ts'
import { Poller, type SweepProgress } from './poller.ts'

/** By the number of hosts: a short list costs little, and a dead host is noticed early. */
const RELOADS: readonly (readonly [hostsMax: number, everyMs: number])[] = [
  [100, 5000],
  [1000, 15_000],
  [Infinity, 60_000],
]
const USAGE_MS = 10_000
const COUNT_MS = 60_000
/** Metadata is searched by the server. */
const TYPING_MS = 300

/** The pollers of the view, and a number that changes with their values. */
function usePollers(): HostPollers & { readonly revision: number } {
  const [revision, setRevision] = useState(0)
  const pollers = useMemo(() => {
    const onChange = () => setRevision((count) => count + 1)
    const isPaused = () => document.visibilityState === 'hidden'
    return {
      usage: new Poller({ read: readUsage, refreshMs: USAGE_MS, onChange, isPaused, isFinal: isRefusal }),
      counts: new Poller({ read: countAllocations, refreshMs: COUNT_MS, onChange, isPaused, isFinal: isRefusal }),
    }
  }, [])
  useEffect(
    () => () => {
      pollers.usage.close()
      pollers.counts.close()
    },
    [pollers],
  )
  return { ...pollers, revision }
}

function useSettled(text: string): string {
  const [settled, setSettled] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), TYPING_MS)
    return () => clearTimeout(timer)
  }, [text])
  return settled
}

export default function HostListView() {
  const { query } = address.value
  const text = query.get('q') ?? ''
  const meta = JSON.stringify(parseSearch(useSettled(text)).meta)
  const [everyMs, setEveryMs] = useState<number>()
  const hosts = useResource<readonly HostStub[]>(
    (signal, showPart) => loadHosts(JSON.parse(meta), signal, showPart),
    [meta],
    { everyMs },
  )
  const count = hosts.data?.length ?? 0
  useEffect(() => setEveryMs(RELOADS.find(([hostsMax]) => count <= hostsMax)?.[1]), [count])
  return (
    <View title="Hosts" isFull>
      <div class="filters">
        <Field
          label="Search hosts"
          isLabelHidden
          isSearch
          value={text}
          placeholder="Name, ID, address, class, or metadata as key=value"
          onInput={(value) => setQuery({ q: value })}
        />
        <StatusFilter
          hosts={hosts.data && filterHosts(hosts.data, parseSearch(text), undefined)}
          isPart={hosts.isPart}
          current={query.get('status') ?? undefined}
        />
      </div>
      <Loaded resource={hosts}>{(data) => <HostTable hosts={data} isSelected={meta !== '[]'} />}</Loaded>
    </View>
  )
}

interface StatusFilterProps {
  /** Those that the search finds; undefined while they are loaded. */
  readonly hosts: readonly HostStub[] | undefined
  /** More hosts are loaded. */
  readonly isPart: boolean
  readonly current: string | undefined
}

function StatusFilter({ current, hosts, isPart }: StatusFilterProps) {
  const counts = countStatuses(hosts ?? [])
  const more = isPart ? '+' : ''
  const isUnknown = current !== undefined && !counts.some(([status]) => status === current)
  const choices: readonly (readonly [string, number])[] = isUnknown ? [...counts, [current, 0]] : counts
  return (
    <div class="filter-choices" role="group" aria-label="Status">
      <Button pressed={current === undefined} onClick={() => setQuery({ status: undefined })}>
        All{hosts && ` ${hosts.length}${more}`}
      </Button>
      {choices.map(([status, count]) => (
        <Button key={status} pressed={current === status} onClick={() => setQuery({ status })}>
          {status}
          {hosts && ` ${count}${more}`}
        </Button>
      ))}
    </div>
  )
}

interface HostTableProps {
  readonly hosts: readonly HostStub[]
  /** The server has selected them by their metadata. */
  readonly isSelected: boolean
}

function HostTable({ hosts, isSelected }: HostTableProps) {
  const { query } = address.value
  const [text, status, sort] = [query.get('q') ?? '', query.get('status') ?? undefined, query.get('sort')]
  const isNarrow = useMedia(NARROW)
  const { counts, revision, usage } = usePollers()
  const hasLate = hosts.some(({ heartbeatAtMs }) => heartbeatAtMs !== undefined)
  const columns = useMemo(
    () => hostColumns({ counts, usage }, hasLate).filter(({ isMain }) => !isNarrow || isMain),
    [counts, usage, isNarrow, hasLate],
  )
  const sorting = sortingOf(sort, columns)
  const isLive = sorting !== undefined && columns[sorting.column]?.isLive === true
  const found = useMemo(() => filterHosts(hosts, parseSearch(text), status), [hosts, text, status])
  // A new list is sorted again.
  const rows = useMemo(() => [...found], [found, isLive ? revision : 0])
  const measure = () => usage.sweep(found.filter(({ Status }) => Status === 'ready').map(({ ID }) => ID))
  useEffect(() => {
    if (isLive) measure()
  }, [isLive, found.length, text, status])
  const sortBy = ({ column, isDescending }: Sorting) => {
    const id = columns[column]?.id
    if (id !== undefined) setQuery({ sort: isDescending ? `-${id}` : id })
  }
  useCommands(
    [
      { title: 'Show the hosts with the fullest disks first', group: 'Hosts', run: () => setQuery({ sort: '-disk' }) },
      { title: 'Show hosts that are down', group: 'Hosts', run: () => setQuery({ status: 'down' }) },
    ],
    [],
  )
  const onVisible = (visible: readonly HostStub[]) => {
    const ids = visible.filter(({ Status }) => Status === 'ready').map(({ ID }) => ID)
    usage.show(ids)
    counts.show(isNarrow ? [] : ids)
  }
  if (hosts.length === 0 && !isSelected) {
    return (
      <Empty title="No host has registered">
        <p>Start an agent with a client role and the NATS address of this server. It appears here within seconds.</p>
      </Empty>
    )
  }
  if (rows.length === 0) {
    return (
      <Empty title="No host matches">
        <p>Metadata must match exactly: key=value. Other words occur in the name, ID, address, class or version.</p>
        <Button onClick={() => setQuery({ q: undefined, status: undefined })}>Clear the search</Button>
      </Empty>
    )
  }
  return (
    <>
      {isLive && <SweepState progress={usage.progress} measure={measure} />}
      <DataTable
        label="Hosts"
        rows={rows}
        columns={columns}
        linkOf={({ ID }) => pathOf('hosts', ID)}
        onVisible={onVisible}
        sorting={sorting}
        onSort={sortBy}
      />
    </>
  )
}

interface SweepStateProps {
  readonly progress: SweepProgress | undefined
  readonly measure: () => void
}

/** The order by use needs the use of all hosts, not only of the visible ones. */
function SweepState({ measure, progress }: SweepStateProps) {
  return (
    <p class="sweep" role="status">
      {!progress || progress.done < progress.total ? (
        <>
          <progress max={progress?.total ?? 1} value={progress?.done ?? 0} aria-label="Measured hosts" /> Measuring:{' '}
          {progress?.done ?? 0} of {progress?.total ?? 0} hosts
        </>
      ) : (
        <>
          All hosts that are ready have been measured. <Button onClick={measure}>Measure again</Button>
        </>
      )}
    </p>
  )
}
