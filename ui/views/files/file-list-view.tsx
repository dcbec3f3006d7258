/** Chooses an allocation, whose files are shown then. */
import { useEffect, useState } from 'preact/hooks'
import { send } from '../../api/client.ts'
import type { ServerAllocations } from '../../api/types.ts'
import { address, pathOf, setQuery } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import { needsLoginForJobs } from '../../app/session.ts'
import { type Column, DataTable } from '../../components/data-table.tsx'
import { Field } from '../../components/field.tsx'
import { Badge, Time } from '../../components/format.tsx'
import { counted } from '../../components/plural.ts'
import { Link } from '../../components/link.tsx'
import { NARROW, useMedia } from '../../components/media.ts'
import { Empty, Loaded, LoginNeeded } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { type MayInNamespace, useNamespacePermissions } from '../hosts/namespace-permissions.ts'
import { allocationFilter } from './allocation-filter.ts'
import { visibleText } from '../../app/invisible-characters.ts'

type Allocation = ServerAllocations[number]

interface Page {
  readonly allocations: readonly Allocation[]
  readonly hasMore: boolean
}

const PAGE = 1000
const RELOAD_MS = 30_000
const TYPING_MS = 300

async function load(text: string, signal: AbortSignal): Promise<Page> {
  const query = { namespace: '*', task_states: false, per_page: PAGE, filter: allocationFilter(text) }
  const response = await send('/v1/allocations', { query, signal })
  const allocations: readonly Allocation[] = await response.json()
  return { allocations, hasMore: response.headers.has('X-Nomad-NextToken') }
}

export default function FileListView() {
  const text = address.value.query.get('q') ?? ''
  const [settled, setSettled] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), TYPING_MS)
    return () => clearTimeout(timer)
  }, [text])
  const page = useResource((signal) => load(settled, signal), [settled], { everyMs: RELOAD_MS })
  return (
    <View title="Files" isFull>
      <Field
        label="Search allocations"
        isLabelHidden
        isSearch
        value={text}
        placeholder="Name, job, host, namespace or ID of an allocation"
        onInput={(value) => setQuery({ q: value })}
      />
      <Loaded resource={page}>{(data) => <AllocationTable page={data} isFiltered={settled.trim() !== ''} />}</Loaded>
    </View>
  )
}

const COLUMNS: readonly (Column<Allocation> & { readonly isMain?: boolean })[] = [
  {
    title: 'Allocation',
    width: 'minmax(140px, 2fr)',
    isMain: true,
    order: ({ Name }) => Name,
    cell: ({ ID, Name }) => <bdi title={ID}>{visibleText(Name === '' ? ID : Name)}</bdi>,
  },
  { title: 'ID', width: '80px', cell: ({ ID }) => <code>{ID.slice(0, 8)}</code> },
  { title: 'Job', order: ({ JobID }) => JobID, cell: ({ JobID }) => <bdi>{visibleText(JobID)}</bdi> },
  { title: 'Namespace', order: ({ Namespace }) => Namespace, cell: ({ Namespace }) => visibleText(Namespace) },
  {
    title: 'Host',
    order: ({ NodeName }) => NodeName,
    cell: ({ NodeID, NodeName }) => (
      <Link to={pathOf('hosts', NodeID)}>
        <bdi>{visibleText(NodeName)}</bdi>
      </Link>
    ),
  },
  {
    title: 'Status',
    width: '96px',
    isMain: true,
    order: ({ ClientStatus }) => ClientStatus,
    cell: ({ ClientStatus }) => <Badge state={ClientStatus} />,
  },
  {
    title: 'Created',
    width: '110px',
    isDescendingFirst: true,
    order: ({ CreateTime }) => CreateTime,
    cell: ({ CreateTime }) => <Time at={CreateTime / 1e6} />,
  },
]

interface AllocationTableProps {
  readonly page: Page
  readonly isFiltered: boolean
}

function AllocationTable({ isFiltered, page: { allocations, hasMore } }: AllocationTableProps) {
  const isNarrow = useMedia(NARROW)
  const may = useNamespacePermissions(allocations.map(({ Namespace }) => Namespace))
  const closed = closedNamespaces(allocations, may)
  if (allocations.length === 0) {
    if (needsLoginForJobs.value) return <LoginNeeded what="files" />
    return isFiltered ? (
      <Empty title="No allocation matches">
        <p>Each word must occur in the name, job, host, namespace or ID.</p>
      </Empty>
    ) : (
      <Empty title="No allocation that you may see">
        <p>Start one with "outpost alloc run", or log in with a token that may read jobs.</p>
      </Empty>
    )
  }
  return (
    <>
      {hasMore && <p class="muted">The first {counted(allocations.length, 'allocation')}. Search to see others.</p>}
      {closed.length > 0 && (
        <p class="muted">
          Your token may not read files of the {closed.length === 1 ? 'namespace' : 'namespaces'}{' '}
          {visibleText(closed.join(', '))}: this needs the capability "read-fs".
        </p>
      )}
      <DataTable
        label="Allocations"
        rows={allocations}
        columns={COLUMNS.filter(({ isMain }) => !isNarrow || isMain)}
        linkOf={({ ID, Namespace }) => (closed.includes(Namespace) ? undefined : pathOf('files', ID))}
      />
    </>
  )
}

/** Namespaces whose files the token may not read; none until the permissions are known. */
function closedNamespaces(allocations: readonly Allocation[], may: MayInNamespace): readonly string[] {
  if (!may.isKnown) return []
  return [...new Set(allocations.map(({ Namespace }) => Namespace))].filter((namespace) => !may(namespace, 'read-fs'))
}
