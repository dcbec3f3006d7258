/** The entries of a directory. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { read } from '../../api/client.ts'
import { useKeys } from '../../app/keys.ts'
import { navigate, pathOf } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import { Button } from '../../components/button.tsx'
import { type Column, DataTable, type Sorting } from '../../components/data-table.tsx'
import { Field } from '../../components/field.tsx'
import { formatBytes, Time } from '../../components/format.tsx'
import { NARROW, useMedia } from '../../components/media.ts'
import { Empty, Loaded } from '../../components/states.tsx'
import type { FilePlace } from './file-place.ts'
import { visibleText } from '../../app/invisible-characters.ts'
import { closed, type Compare, type Entry, keyOf, type OpenDirectories, type TreeRow, treeRows } from './tree.ts'

const RELOAD_MS = 10_000

export function Directory({ place }: { readonly place: FilePlace }) {
  const { allocation, path, segments } = place
  const [search, setSearch] = useState('')
  const entries = useResource(
    (signal) => read('/v1/client/fs/ls/{alloc_id}', { params: { alloc_id: allocation }, query: { path }, signal }),
    [allocation, path],
    { everyMs: RELOAD_MS },
  )
  const up = segments.length === 0 ? '/files' : pathOf('files', allocation, ...segments.slice(0, -1))
  useKeys('Directory', [{ keys: 'u', label: 'Go to the directory above', run: () => navigate(up) }])
  return (
    <>
      <div class="filters">
        <Field
          label="Filter names"
          isLabelHidden
          isSearch
          value={search}
          placeholder="Part of a name"
          onInput={setSearch}
        />
        <Button onClick={() => navigate(up)} title="u">
          ↑ {segments.length === 0 ? 'Allocations' : 'Directory above'}
        </Button>
      </div>
      <Loaded resource={entries}>
        {(data) => <EntryTable place={place} entries={data} search={search.toLowerCase()} />}
      </Loaded>
    </>
  )
}

type Toggle = (row: TreeRow, isOpen: boolean) => void

/** The mark of a directory that opens it in place; keys do the same. */
function TreeMark({ row, toggle }: { readonly row: TreeRow; readonly toggle: Toggle }) {
  const { below, IsDir, isOpen, Name: name } = row
  const style = { marginLeft: `${(below.length - 1) * 18}px` }
  if (!IsDir) return <span class="file-icon" style={style} />
  return (
    <button
      type="button"
      class="file-icon"
      style={style}
      tabIndex={-1}
      aria-expanded={isOpen}
      aria-label={`Contents of ${visibleText(name)}`}
      onClick={() => toggle(row, !isOpen)}
    >
      {isOpen ? '▾' : '▸'}
    </button>
  )
}

function Name({ error, FileMode, IsDir, Name: name }: TreeRow) {
  return (
    <>
      <bdi class={IsDir ? 'directory-name' : undefined}>
        {visibleText(name)}
        {IsDir && '/'}
      </bdi>
      {FileMode.startsWith('L') && <span class="muted"> (link)</span>}
      {error !== undefined && <span class="muted"> {error}</span>}
    </>
  )
}

interface FileColumn extends Column<TreeRow> {
  readonly isMain?: boolean
  /** Of the entries of one directory. */
  readonly compare?: Compare
}

const sizeOf = ({ IsDir, Size }: Entry) => (IsDir ? -1 : Size)

function columnsWith(toggle: Toggle): readonly FileColumn[] {
  return [
    {
      title: 'Name',
      width: 'minmax(140px, 3fr)',
      isMain: true,
      order: ({ Name: name }) => name,
      compare: (one, other) => (one.Name < other.Name ? -1 : 1),
      lead: (row) => <TreeMark row={row} toggle={toggle} />,
      cell: Name,
    },
    {
      title: 'Size',
      width: '100px',
      isNumber: true,
      isMain: true,
      isDescendingFirst: true,
      order: sizeOf,
      compare: (one, other) => sizeOf(one) - sizeOf(other),
      cell: ({ IsDir, Size }) =>
        IsDir ? <span class="muted">–</span> : <span title={`${Size} bytes`}>{formatBytes(Size)}</span>,
    },
    { title: 'Mode', width: '110px', cell: ({ FileMode }) => <code>{FileMode}</code> },
    {
      title: 'Modified',
      width: '120px',
      isDescendingFirst: true,
      order: ({ ModTime }) => Date.parse(ModTime),
      compare: (one, other) => Date.parse(one.ModTime) - Date.parse(other.ModTime),
      cell: ({ ModTime }) => <Time at={ModTime} />,
    },
  ]
}

/** Directories that the user opened in place. */
function useOpenDirectories({ allocation, segments }: FilePlace) {
  const [open, setOpen] = useState<OpenDirectories>(new Map())
  const abort = useRef(new AbortController())
  useEffect(() => () => abort.current.abort(), [])
  const load = async (below: readonly string[]) => {
    const path = `/${[...segments, ...below].join('/')}`
    const { signal } = abort.current
    const query = { path }
    const found = await read('/v1/client/fs/ls/{alloc_id}', { params: { alloc_id: allocation }, query, signal }).then(
      (entries) => ({ entries }),
      (error: unknown) => ({ error: error instanceof Error ? error.message : String(error) }),
    )
    // Closed meanwhile.
    if (!signal.aborted)
      setOpen((before) => (before.has(keyOf(below)) ? new Map(before).set(keyOf(below), found) : before))
  }
  const toggle = ({ below, IsDir }: TreeRow, isOpen: boolean) => {
    if (!IsDir) return
    setOpen((before) => (isOpen ? new Map(before).set(keyOf(below), {}) : closed(before, below)))
    if (isOpen) void load(below)
  }
  return [open, toggle] as const
}

interface EntryTableProps {
  readonly place: FilePlace
  readonly entries: readonly Entry[]
  readonly search: string
}

function EntryTable({ entries, place, search }: EntryTableProps) {
  const { allocation, segments } = place
  const isNarrow = useMedia(NARROW)
  const [open, toggle] = useOpenDirectories(place)
  const [sorting, setSorting] = useState<Sorting>()
  const columns = useMemo(() => columnsWith(toggle).filter(({ isMain }) => !isNarrow || isMain), [isNarrow])
  const rows = useMemo(() => {
    const order = sorting && columns[sorting.column]?.compare
    const sign = sorting?.isDescending === true ? -1 : 1
    const compare: Compare | undefined = order && ((one, other) => sign * order(one, other))
    return treeRows(entries, open, { compare, search })
  }, [entries, open, search, sorting, columns])
  if (entries.length === 0) return <Empty title="The directory is empty" />
  if (rows.length === 0) return <Empty title="No name matches" />
  return (
    <DataTable
      label="Files"
      rows={rows}
      columns={columns}
      linkOf={({ below }) => pathOf('files', allocation, ...segments, ...below)}
      sorting={sorting}
      onSort={setSorting}
      isSorted
      onToggle={toggle}
    />
  )
}
