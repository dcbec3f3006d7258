/** The entries of a directory. */
import { useMemo, useState } from 'preact/hooks'
import { read } from '../../api/client.ts'
import type { HostFsLs } from '../../api/types.ts'
import { useKeys } from '../../app/keys.ts'
import { navigate, pathOf } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import { Button } from '../../components/button.tsx'
import { type Column, DataTable } from '../../components/data-table.tsx'
import { Field } from '../../components/field.tsx'
import { formatBytes, Time } from '../../components/format.tsx'
import { NARROW, useMedia } from '../../components/media.ts'
import { Empty, Loaded } from '../../components/states.tsx'
import type { FilePlace } from './file-place.ts'
import { visibleText } from '../../app/invisible-characters.ts'

type Entry = HostFsLs[number]

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

function nameColumn({ FileMode, IsDir, Name }: Entry) {
  const isLink = FileMode.startsWith('L')
  return (
    <>
      <span class="file-icon" aria-hidden="true">
        {IsDir ? '▸' : ''}
      </span>
      <bdi class={IsDir ? 'directory-name' : undefined}>
        {visibleText(Name)}
        {IsDir && '/'}
      </bdi>
      {isLink && <span class="muted"> (link)</span>}
    </>
  )
}

const COLUMNS: readonly (Column<Entry> & { readonly isMain?: boolean })[] = [
  {
    title: 'Name',
    width: 'minmax(140px, 3fr)',
    isMain: true,
    order: ({ Name }) => Name,
    cell: nameColumn,
  },
  {
    title: 'Size',
    width: '100px',
    isNumber: true,
    isMain: true,
    isDescendingFirst: true,
    order: ({ IsDir, Size }) => (IsDir ? -1 : Size),
    cell: ({ IsDir, Size }) =>
      IsDir ? <span class="muted">–</span> : <span title={`${Size} bytes`}>{formatBytes(Size)}</span>,
  },
  { title: 'Mode', width: '110px', cell: ({ FileMode }) => <code>{FileMode}</code> },
  {
    title: 'Modified',
    width: '120px',
    isDescendingFirst: true,
    order: ({ ModTime }) => Date.parse(ModTime),
    cell: ({ ModTime }) => <Time at={ModTime} />,
  },
]

interface EntryTableProps {
  readonly place: FilePlace
  readonly entries: readonly Entry[]
  readonly search: string
}

function EntryTable({ entries, place: { allocation, segments }, search }: EntryTableProps) {
  const isNarrow = useMedia(NARROW)
  // Directories first; the host has sorted the names.
  const rows = useMemo(() => {
    const found = search === '' ? entries : entries.filter(({ Name }) => Name.toLowerCase().includes(search))
    return [...found.filter(({ IsDir }) => IsDir), ...found.filter(({ IsDir }) => !IsDir)]
  }, [entries, search])
  if (entries.length === 0) return <Empty title="The directory is empty" />
  if (rows.length === 0) return <Empty title="No name matches" />
  return (
    <DataTable
      label="Files"
      rows={rows}
      columns={COLUMNS.filter(({ isMain }) => !isNarrow || isMain)}
      linkOf={({ Name }) => pathOf('files', allocation, ...segments, Name)}
    />
  )
}
