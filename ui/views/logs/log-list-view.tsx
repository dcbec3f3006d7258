/** The logs of all hosts: by task, allocation or job. */
import { useEffect, useMemo, useState } from 'preact/hooks'
import { read } from '../../api/client.ts'
import { address, navigate, setQuery } from '../../app/location.ts'
import { useCommands } from '../../app/palette.tsx'
import { useResource } from '../../app/resource.ts'
import { mayReadJobs, needsLoginForJobs } from '../../app/session.ts'
import { Button } from '../../components/button.tsx'
import { type Column, DataTable } from '../../components/data-table.tsx'
import { Field } from '../../components/field.tsx'
import { Badge, Time } from '../../components/format.tsx'
import { Empty, Loaded, LoginNeeded } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { targetOfPath } from './stream/log-target.ts'
import { wallPathWith } from './wall/wall-tails.ts'
import { filterRows, type LogRowData, rowsOf, type StateFilter, type TargetKind } from './list/log-targets.ts'

const EVERY_MS = 5000
/** Logs in the command palette. */
const COMMANDS_MAX = 500
const KINDS: readonly (readonly [kind: TargetKind, title: string])[] = [
  ['tasks', 'Tasks'],
  ['allocations', 'Allocations'],
  ['jobs', 'Jobs'],
]
const STATES: readonly (readonly [state: StateFilter, title: string])[] = [
  ['all', 'All'],
  ['running', 'Running'],
  ['failed', 'Failed'],
]

const COLUMNS: Readonly<Record<TargetKind, readonly Column<LogRowData>[]>> = {
  tasks: columns('Task', 'Allocation'),
  allocations: columns('Allocation', 'Job'),
  jobs: columns('Job', 'Allocations'),
}

const NARROW_COLUMNS: readonly Column<LogRowData>[] = [
  {
    title: 'Log',
    cell: (row) => (
      <>
        {row.name}{' '}
        <span class="muted">
          {row.host} · {row.of}
        </span>
      </>
    ),
    order: (row) => row.name,
  },
  { title: 'State', cell: (row) => <Badge state={row.state} />, width: '84px', order: (row) => row.state },
  { title: 'When', cell: (row) => <Time at={row.eventMs} />, width: '88px', order: (row) => row.eventMs },
]
const NARROW = window.matchMedia('(max-width: 760px)')

function columns(name: string, of: string): readonly Column<LogRowData>[] {
  return [
    { title: name, cell: (row) => row.name, width: 'minmax(90px, 1.2fr)', order: (row) => row.name },
    { title: of, cell: (row) => row.of, width: 'minmax(0, 1.2fr)', order: (row) => row.of },
    { title: 'State', cell: (row) => <Badge state={row.state} />, width: '92px', order: (row) => row.state },
    { title: 'Host', cell: (row) => row.host, width: 'minmax(0, 0.8fr)', order: (row) => row.host },
    { title: 'Last event', cell: (row) => row.event, width: 'minmax(0, 1.4fr)', order: (row) => row.event },
    { title: 'When', cell: (row) => <Time at={row.eventMs} />, width: '96px', order: (row) => row.eventMs },
    { title: 'Wall', cell: (row) => <WallButton row={row} />, width: '64px' },
  ]
}

export default function LogListView() {
  const allocations = useResource((signal) => read('/v1/allocations', { query: { namespace: '*' }, signal }), [], {
    everyMs: EVERY_MS,
  })
  useCommands([{ title: 'Open the wall', group: 'Logs', run: () => navigate('/logs/wall') }], [])
  return (
    <View title="Logs" isFull actions={<Button onClick={() => navigate('/logs/wall')}>Wall</Button>}>
      <Loaded resource={allocations}>{(data) => <LogTable allocations={data} />}</Loaded>
    </View>
  )
}

function LogTable({ allocations }: { readonly allocations: Parameters<typeof rowsOf>[0] }) {
  const { query } = address.value
  const kind = KINDS.find(([each]) => each === query.get('kind'))?.[0] ?? 'tasks'
  const state = STATES.find(([each]) => each === query.get('state'))?.[0] ?? 'all'
  const search = query.get('search') ?? ''
  const rows = useMemo(() => rowsOf(allocations, kind), [allocations, kind])
  const shown = useMemo(() => filterRows(rows, search, state), [rows, search, state])
  const isNarrow = useNarrow()
  useCommands(
    rows.slice(0, COMMANDS_MAX).map(({ host, name, of, path }) => ({
      title: `${name} (${of}) on ${host}, ${path}`,
      group: 'Logs',
      run: () => navigate(`/logs/${path}`),
    })),
    [rows],
  )
  const countOf = (each: StateFilter) => filterRows(rows, search, each).length
  if (allocations.length === 0) {
    if (needsLoginForJobs.value) return <LoginNeeded what="logs" />
    if (!mayReadJobs.value) {
      return (
        <Empty title="No allocation that you may see">
          <p>The list shows allocations of the namespaces in which your token has the capability "read-job".</p>
        </Empty>
      )
    }
    return (
      <Empty title="There are no allocations">
        <p>
          Run a command as one: <code>outpost alloc run -task hello -- echo hello</code>
        </p>
      </Empty>
    )
  }
  return (
    <>
      <div class="log-list-bar">
        <Field
          label="Search"
          isLabelHidden
          isSearch
          placeholder="Search: task, job, host, ID  /"
          value={search}
          onInput={(text) => setQuery({ search: text })}
        />
        <div class="log-segments" role="group" aria-label="Show">
          {KINDS.map(([each, title]) => (
            <Button key={each} pressed={each === kind} onClick={() => setQuery({ kind: each })}>
              {title}
            </Button>
          ))}
        </div>
        <div class="log-segments" role="group" aria-label="State">
          {STATES.map(([each, title]) => (
            <Button
              key={each}
              pressed={each === state}
              class={each === 'failed' && countOf('failed') > 0 ? 'log-failed' : ''}
              onClick={() => setQuery({ state: each })}
            >
              {title} {countOf(each)}
            </Button>
          ))}
        </div>
      </div>
      {shown.length === 0 ? (
        <Empty title={`No ${kind} match`}>
          <Button onClick={() => setQuery({ search: undefined, state: undefined })}>Show all</Button>
        </Empty>
      ) : (
        <DataTable
          key={`${kind} ${isNarrow}`}
          label="Logs"
          rows={shown}
          columns={isNarrow ? NARROW_COLUMNS : COLUMNS[kind]}
          linkOf={({ path }) => `/logs/${path}`}
        />
      )}
    </>
  )
}

function useNarrow(): boolean {
  const [isNarrow, setNarrow] = useState(NARROW.matches)
  useEffect(() => {
    const onChange = () => setNarrow(NARROW.matches)
    NARROW.addEventListener('change', onChange)
    return () => NARROW.removeEventListener('change', onChange)
  }, [])
  return isNarrow
}

function WallButton({ row: { name, path } }: { readonly row: LogRowData }) {
  return (
    <Button
      class="log-add"
      label={`Open ${name} on the wall`}
      onClick={() => {
        const target = targetOfPath(path)
        if (target) navigate(wallPathWith(target))
      }}
    >
      +
    </Button>
  )
}
