/** A folder of a KV mount: its secrets and folders, filtered, or a search of everything below it. */
import { useEffect, useMemo, useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { ApiError } from '../../api/client.ts'
import { useKeys } from '../../app/keys.ts'
import { address, navigate, setQuery } from '../../app/location.ts'
import { useCommands } from '../../app/palette.tsx'
import { counted } from '../../components/plural.ts'
import { Button } from '../../components/button.tsx'
import { type Column, DataTable } from '../../components/data-table.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { Field } from '../../components/field.tsx'
import { Empty, Loading } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { useChanges } from './secret/changes.ts'
import { type FolderNames, readFolder } from './folder-names.ts'
import { FOUND_MAX, type Found, searchNames } from './kv.ts'
import { baseName, folderOf, foldersOf, type KvMount, kvPath, nameFault, viewOf } from './secret-path.ts'
import { LoadedSecrets, useSecretsResource } from './states.tsx'

/** A search starts after the last key. */
const SEARCH_DELAY_MS = 250

interface FolderViewProps {
  readonly mount: KvMount
  readonly folder: string
}

/** The views above a folder or a secret. */
export function parentsOf(mount: KvMount, name: string) {
  const folders = name === '' ? [] : foldersOf(folderOf(name))
  return [
    { title: 'Secrets', to: '/secrets' },
    ...folders.map((folder) => ({
      title: folder === '' ? mount.path.slice(0, -1) : baseName(folder).slice(0, -1),
      to: viewOf(mount.path, folder),
    })),
  ]
}

export function FolderView({ folder, mount }: FolderViewProps) {
  const { query } = address.value
  const wanted = query.get('q') ?? ''
  const searchPath = kvPath(mount, 'search', folder)
  const createPath = kvPath(mount, 'data', `${folder}new`)
  const watchPath = mount.version === 2 ? kvPath(mount, 'watch', folder) : ''
  const may = useCapabilities([searchPath, createPath, watchPath].filter(Boolean))
  const mayCreate = may(createPath, 'create')
  const maySearch = may(searchPath, mount.version === 2 ? 'read' : 'scan')
  const isDeep = query.has('below') && maySearch
  const [dialog, setDialog] = useState<PathDialogProps['kind']>()
  const list = useSecretsResource<FolderNames>(
    (signal, showPart) => readFolder(mount, folder, signal, showPart),
    [mount.path, folder],
  )
  const [changes, setChanges] = useState(0)
  useChanges(mount, folder, may(watchPath, 'read'), () => setChanges((count) => count + 1))
  const reload = () => {
    setChanges(0)
    list.reload()
  }
  const create = () => setDialog('create')
  const open = () => setDialog('open')
  useKeys('Folder', [
    { keys: 'o', label: 'Open a path', run: open },
    ...(mayCreate ? [{ keys: 'n', label: 'Create a secret', run: create }] : []),
  ])
  const group = mount.path + folder
  useCommands(
    [
      { title: 'Open a path', group, run: open },
      ...(mayCreate ? [{ title: 'Create a secret', group, run: create }] : []),
    ],
    [mayCreate],
  )
  const isForbidden = list.data === undefined && list.error instanceof ApiError && list.error.isForbidden
  return (
    <View
      title={folder === '' ? mount.path : folder}
      parents={parentsOf(mount, folder)}
      isFull
      actions={
        mayCreate && (
          <Button kind="primary" onClick={create} title="n">
            Create a secret
          </Button>
        )
      }
    >
      <div class="folder-search">
        <Field
          label="Search"
          isLabelHidden
          placeholder={isDeep ? 'Part of the path; * for any characters' : 'Filter by name'}
          isSearch
          value={wanted}
          onInput={(q) => setQuery({ q })}
        />
        {maySearch && (
          <label class="check">
            <input type="checkbox" checked={isDeep} onChange={() => setQuery({ below: isDeep ? undefined : 'true' })} />
            Search folders below, too
          </label>
        )}
      </div>
      {changes > 0 && (
        <p class="notice" role="status">
          {changes === 1 ? 'A secret' : `${changes} secrets`} in this folder or below changed.{' '}
          <Button onClick={reload}>Reload</Button>
        </p>
      )}
      {isDeep && wanted !== '' ? (
        <SearchResults mount={mount} folder={folder} wanted={wanted} />
      ) : (
        <LoadedSecrets resource={list}>
          {({ names, patterns }) => (
            <>
              {patterns && <NotListed {...{ mount, folder, names, patterns, open }} />}
              {(!patterns || names.length > 0) && (
                <NameTable {...{ mount, folder, names, wanted, mayCreate }} isPart={list.isPart} />
              )}
            </>
          )}
        </LoadedSecrets>
      )}
      {isForbidden && (
        <p class="notice">
          A token that may not list names can still open what it may read.{' '}
          <Button onClick={open} title="o">
            Open a path
          </Button>
        </p>
      )}
      {dialog && <PathDialog kind={dialog} mount={mount} folder={folder} close={() => setDialog(undefined)} />}
    </View>
  )
}

interface NotListedProps extends FolderViewProps, Required<FolderNames> {
  readonly open: () => void
}

/** Above the names that the policies of the token contain. */
function NotListed({ folder, mount, names, open, patterns }: NotListedProps) {
  return (
    <div class="notice">
      <p role="status">
        Your token may not list this folder: this needs the capability "list" on{' '}
        <code>{kvPath(mount, 'metadata', folder)}</code>. {names.length > 0 && 'The names below are in its policies. '}
        {patterns.length > 0 && 'If you know a path that matches one of these, open it:'}
        {patterns.map((pattern) => (
          <span key={pattern}>
            {' '}
            <code>{pattern}</code>
          </span>
        ))}
      </p>
      <Button onClick={open} title="o">
        Open a path
      </Button>
    </div>
  )
}

interface NameTableProps extends FolderViewProps {
  readonly names: readonly string[]
  /** More names are loaded. */
  readonly isPart: boolean
  readonly wanted: string
  readonly mayCreate: boolean
}

function NameTable({ folder, isPart, mayCreate, mount, names, wanted }: NameTableProps) {
  const text = wanted.toLowerCase()
  const shown = useMemo(() => names.filter((name) => name.toLowerCase().includes(text)), [names, text])
  const columns = useMemo(() => columnsOf(folder), [folder])
  if (names.length === 0) {
    return (
      <Empty title={folder === '' ? 'There are no secrets in this engine.' : 'This folder has no secrets.'}>
        <p>{mayCreate ? 'Create the first one.' : 'Secrets appear here when they are written.'}</p>
      </Empty>
    )
  }
  if (shown.length === 0) {
    return isPart ? <Loading /> : <Empty title={`None of ${counted(names.length, 'name')} contains this text.`} />
  }
  const count = isPart ? `${names.length}+` : names.length
  return (
    <>
      <p class="muted" role="status">
        {shown.length === names.length ? count : `${shown.length} of ${count}`} {count === 1 ? 'name' : 'names'}
      </p>
      <DataTable label="Names" rows={shown} columns={columns} linkOf={(name) => viewOf(mount.path, folder + name)} />
    </>
  )
}

function columnsOf(folder: string): readonly Column<string>[] {
  return [
    {
      title: 'Name',
      cell: (name) => <span class="secret-name">{name.startsWith(folder) ? name.slice(folder.length) : name}</span>,
      order: (name) => name,
    },
    { title: 'Kind', cell: (name) => (name.endsWith('/') ? 'folder' : 'secret'), width: '80px' },
  ]
}

function SearchResults({ folder, mount, wanted }: FolderViewProps & { readonly wanted: string }) {
  const [settled, setSettled] = useState(wanted)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(wanted), SEARCH_DELAY_MS)
    return () => clearTimeout(timer)
  }, [wanted])
  const resource = useSecretsResource((signal) => searchNames(mount, folder, settled, signal), [settled])
  const columns = useMemo(() => columnsOf(''), [])
  return (
    <LoadedSecrets resource={resource}>
      {({ isMore, names }: Found) =>
        names.length === 0 ? (
          <Empty title="No secret below this folder matches." />
        ) : (
          <>
            <p class="muted" role="status">
              {isMore ? `The first ${FOUND_MAX} secrets. Type more to see fewer.` : counted(names.length, 'secret')}
            </p>
            <DataTable
              label="Found secrets"
              rows={names}
              columns={columns}
              linkOf={(name) => viewOf(mount.path, name)}
            />
          </>
        )
      }
    </LoadedSecrets>
  )
}

interface PathDialogProps extends FolderViewProps {
  readonly kind: 'create' | 'open'
  readonly close: () => void
}

/** Asks for the path of a new secret, or of one that the token cannot find in a list. */
function PathDialog({ close, folder, kind, mount }: PathDialogProps) {
  const [name, setName] = useState(folder)
  const [isSubmitted, setSubmitted] = useState(false)
  const isFolder = kind === 'open' && name.endsWith('/')
  const fault = nameFault(isFolder ? name.slice(0, -1) : name)
  const submit = (event: Event) => {
    event.preventDefault()
    setSubmitted(true)
    if (fault !== undefined) return
    close()
    navigate(`${viewOf(mount.path, name)}${kind === 'create' ? '?tab=edit' : ''}`)
  }
  return (
    <Dialog title={kind === 'create' ? 'Create a secret' : 'Open a path'} close={close}>
      <form class="form" onSubmit={submit}>
        <Field
          label={`Name below ${mount.path}`}
          value={name}
          onInput={setName}
          hint={kind === 'create' ? 'Folders are created with it.' : 'A folder ends with a slash.'}
        />
        {isSubmitted && fault !== undefined && (
          <p class="error" role="alert">
            {fault}
          </p>
        )}
        <div class="form-actions">
          <Button type="submit" kind="primary">
            {kind === 'create' ? 'Continue' : 'Open'}
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
