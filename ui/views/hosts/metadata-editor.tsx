/** Metadata of a host: static keys of its configuration, and dynamic ones, which can be changed. */
import { useState } from 'preact/hooks'
import { sendJson } from '../../api/client.ts'
import { read } from '../../api/client.ts'
import type { HostMetadataRead } from '../../api/types.ts'
import { useResource } from '../../app/resource.ts'
import { mayChangeHosts } from '../../app/session.ts'
import { showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Confirm, Dialog } from '../../components/dialog.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText, Loaded } from '../../components/states.tsx'
import { visibleLines, visibleText } from '../../app/invisible-characters.ts'
import { isApplied, keyProblem, metadataPatch, type MetadataRow, metadataRows, removalText } from './metadata.ts'

const SHOWN_MAX = 500

/** Rejects if the agent does not confirm the change. */
async function change(nodeId: string, key: string, value: string | null): Promise<HostMetadataRead> {
  const body = { NodeID: nodeId, Meta: metadataPatch(key, value) }
  const result = await sendJson<HostMetadataRead>('/v1/client/metadata', {
    method: 'POST',
    query: { node_id: nodeId },
    body,
  })
  if (!isApplied(result, key, value))
    throw new Error('The response of the host does not contain this change. Reload the page.')
  return result
}

export function MetadataEditor({ nodeId }: { readonly nodeId: string }) {
  const loaded = useResource((signal) => read('/v1/client/metadata', { query: { node_id: nodeId }, signal }), [nodeId])
  const [confirmed, setConfirmed] = useState<HostMetadataRead>()
  return (
    <Loaded resource={loaded}>
      {(data) => <MetadataTable nodeId={nodeId} metadata={confirmed ?? data} onChange={setConfirmed} />}
    </Loaded>
  )
}

interface MetadataTableProps {
  readonly nodeId: string
  readonly metadata: HostMetadataRead
  readonly onChange: (confirmed: HostMetadataRead) => void
}

type Editing =
  | { readonly kind: 'edit'; readonly row?: MetadataRow }
  | { readonly kind: 'remove'; readonly row: MetadataRow }

function MetadataTable({ metadata, nodeId, onChange }: MetadataTableProps) {
  const [search, setSearch] = useState('')
  const [editing, setEditing] = useState<Editing>()
  const mayChange = mayChangeHosts.value
  const wanted = search.toLowerCase()
  const rows = metadataRows(metadata).filter(
    ({ key, value = '' }) => key.toLowerCase().includes(wanted) || value.toLowerCase().includes(wanted),
  )
  const close = () => setEditing(undefined)
  const apply = async (key: string, value: string | null) => {
    onChange(await change(nodeId, key, value))
    showSuccess(`The host has ${value === null ? 'removed' : 'set'} ${visibleText(key)}. Servers show it within 10 s.`)
  }
  return (
    <div class="card">
      <div class="filters">
        <Field
          label="Search metadata"
          isLabelHidden
          isSearch
          value={search}
          placeholder="Key or value"
          onInput={setSearch}
        />
        {mayChange && (
          <Button kind="primary" onClick={() => setEditing({ kind: 'edit' })}>
            Add a key
          </Button>
        )}
      </div>
      {!mayChange && <p class="muted">Your token may read metadata, but not change it.</p>}
      <div class="wide">
        <table class="plain-table">
          <thead>
            <tr>
              <th scope="col">Key</th>
              <th scope="col">Value</th>
              <th scope="col">Source</th>
              {mayChange && <th scope="col">Change</th>}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, SHOWN_MAX).map((row) => (
              <Row
                key={row.key}
                row={row}
                mayChange={mayChange}
                edit={() => setEditing({ kind: 'edit', row })}
                remove={() => setEditing({ kind: 'remove', row })}
              />
            ))}
          </tbody>
        </table>
      </div>
      {rows.length === 0 && <p class="muted">No key matches.</p>}
      {rows.length > SHOWN_MAX && (
        <p class="muted">
          The first {SHOWN_MAX} of {rows.length} keys. Search to see others.
        </p>
      )}
      {editing?.kind === 'edit' && (
        <EditDialog row={editing.row} known={metadataRows(metadata)} apply={apply} close={close} />
      )}
      {editing?.kind === 'remove' && <RemovalDialog row={editing.row} apply={apply} close={close} />}
    </div>
  )
}

interface RowProps {
  readonly row: MetadataRow
  readonly mayChange: boolean
  readonly edit: () => void
  readonly remove: () => void
}

function Row({ edit, mayChange, remove, row: { configured, key, source, value } }: RowProps) {
  const mayEdit = mayChange && keyProblem(key) === undefined
  return (
    <tr>
      <th scope="row">
        <bdi>{visibleText(key)}</bdi>
      </th>
      <td>
        {value === undefined ? (
          <span class="muted">unset</span>
        ) : value === '' ? (
          <span class="muted">empty text</span>
        ) : (
          <bdi class="metadata-value">{visibleLines(value)}</bdi>
        )}
        {configured !== undefined && (
          <p class="hint">
            Configured: <bdi>{visibleText(configured)}</bdi>
          </p>
        )}
      </td>
      <td>{source}</td>
      {mayChange && (
        <td>
          <div class="row-actions">
            {mayEdit && (
              <Button label={`Change ${visibleText(key)}`} onClick={edit}>
                Change
              </Button>
            )}
            {mayEdit && source !== 'unset' && (
              <Button label={`${source === 'static' ? 'Unset' : 'Remove'} ${visibleText(key)}`} onClick={remove}>
                {source === 'static' ? 'Unset' : 'Remove'}
              </Button>
            )}
          </div>
        </td>
      )}
    </tr>
  )
}

interface RemovalDialogProps {
  readonly row: MetadataRow
  readonly apply: (key: string, value: null) => Promise<void>
  readonly close: () => void
}

function RemovalDialog({ apply, close, row }: RemovalDialogProps) {
  const { action, effect, title } = removalText(row)
  return (
    <Confirm title={title} action={action} run={() => apply(row.key, null)} close={close}>
      <p>
        <code>{visibleText(row.key)}</code>: {effect}
      </p>
    </Confirm>
  )
}

interface EditDialogProps {
  /** Undefined for a new key. */
  readonly row: MetadataRow | undefined
  /** All keys: a new one must not replace one of them unnoticed. */
  readonly known: readonly MetadataRow[]
  readonly apply: (key: string, value: string) => Promise<void>
  readonly close: () => void
}

function EditDialog({ apply, close, known, row }: EditDialogProps) {
  const [key, setKey] = useState(row?.key ?? '')
  const [value, setValue] = useState(row?.value ?? '')
  const [error, setError] = useState<Error>()
  const [isBusy, setBusy] = useState(false)
  const replaced = row ? undefined : known.find((each) => each.key === key)
  const submit = (event: Event) => {
    event.preventDefault()
    const problem = keyProblem(key)
    if (problem !== undefined) {
      setError(new Error(problem))
      return
    }
    setBusy(true)
    setError(undefined)
    apply(key, value).then(close, (failure: unknown) => {
      setError(failure instanceof Error ? failure : new Error(String(failure)))
      setBusy(false)
    })
  }
  return (
    <Dialog title={row ? `Change ${visibleText(row.key)}` : 'Add a key'} close={close}>
      <form class="form" onSubmit={submit}>
        {!row && <Field label="Key" value={key} onInput={setKey} isRequired autoComplete="off" placeholder="rack" />}
        <Field label="Value" value={value} onInput={setValue} rows={3} autoComplete="off" />
        {replaced && (
          <p class="notice notice-warning" role="status">
            The host has this key already:{' '}
            {replaced.value === undefined ? 'it is unset' : <bdi>{visibleText(replaced.value)}</bdi>}
          </p>
        )}
        {(row ?? replaced)?.source === 'static' && (
          <p class="hint">A dynamic value overrides the configured value, even after a restart of the agent.</p>
        )}
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" kind="primary" isBusy={isBusy}>
            {replaced ? 'Replace the value' : 'Save'}
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
