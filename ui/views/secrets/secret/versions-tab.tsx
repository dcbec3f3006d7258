/** The versions of a secret, newest first: when each was written, by which client, and what can be done with it. */
import { useState } from 'preact/hooks'
import { navigate } from '../../../app/location.ts'
import { showSuccess } from '../../../app/toasts.tsx'
import { Button } from '../../../components/button.tsx'
import { formatExact, Time } from '../../../components/format.tsx'
import { Link } from '../../../components/link.tsx'
import { Empty } from '../../../components/states.tsx'
import { ActionButton } from '../action-button.tsx'
import { type Author, stateOf, versionBefore, type VersionInfo, type VersionState } from './versions.ts'
import { changeVersions } from '../kv.ts'
import type { SecretContext } from './secret-context.ts'
import { viewOf } from '../secret-path.ts'

const SHOWN_FIRST = 50

export function VersionsTab({ context }: { readonly context: SecretContext }) {
  const [shown, setShown] = useState(SHOWN_FIRST)
  const { metadata } = context
  if (!metadata) return <NoMetadata />
  const { current_version: current, versions } = metadata
  if (versions.length === 0) {
    return (
      <Empty title="The secret has no versions.">
        <p>It has settings only. Write the first version.</p>
      </Empty>
    )
  }
  return (
    <>
      <table class="versions">
        <thead>
          <tr>
            <th scope="col">Version</th>
            <th scope="col">Written</th>
            <th scope="col">By</th>
            <th scope="col">State</th>
            <th scope="col">Actions</th>
          </tr>
        </thead>
        <tbody>
          {versions.slice(0, shown).map((info) => (
            <VersionRow key={info.version} context={context} info={info} isCurrent={info.version === current} />
          ))}
        </tbody>
      </table>
      {versions.length > shown && (
        <div class="form-actions">
          <Button onClick={() => setShown(shown * 2)}>Show earlier versions ({versions.length - shown})</Button>
        </div>
      )}
    </>
  )
}

export function NoMetadata() {
  return (
    <Empty title="The versions are not available.">
      <p>There is no such secret, or the policies of your token do not allow reading its metadata.</p>
    </Empty>
  )
}

function authorText(author: Author | null | undefined): string {
  return author?.actor ?? 'unknown'
}

interface VersionRowProps {
  readonly context: SecretContext
  readonly info: VersionInfo
  readonly isCurrent: boolean
}

function VersionRow({ context, info, isCurrent }: VersionRowProps) {
  const { mount, name } = context
  const view = viewOf(mount.path, name)
  const state = stateOf(info)
  const { version } = info
  return (
    <tr>
      <td>
        {state === 'active' ? <Link to={`${view}?version=${version}`}>{version}</Link> : version}
        {isCurrent && <span class="muted"> current</span>}
      </td>
      <td>
        {formatExact(Date.parse(info.created_time))}{' '}
        <span class="muted">
          <Time at={info.created_time} />
        </span>
      </td>
      <td class="version-author">{authorText(info.created_by)}</td>
      <td>
        <VersionBadge state={state} />
        {info.deletion_time !== '' && !info.destroyed && (
          <span class="muted">
            {' '}
            {state === 'active' && 'will be deleted '}
            <Time at={info.deletion_time} />
            {state === 'deleted' && info.deleted_by && ` by ${authorText(info.deleted_by)}`}
          </span>
        )}
      </td>
      <td>
        <RowActions context={context} version={version} state={state} />
      </td>
    </tr>
  )
}

function VersionBadge({ state }: { readonly state: VersionState }) {
  const kind = { active: 'good', deleted: 'neutral', destroyed: 'bad' }[state]
  return <span class={`badge badge-${kind}`}>{state}</span>
}

interface RowActionsProps {
  readonly context: SecretContext
  readonly version: number
  readonly state: VersionState
}

function RowActions({ context, state, version }: RowActionsProps) {
  const { act, may, mount, name, reload, remove } = context
  const compare = `${viewOf(mount.path, name)}?tab=compare&from=${versionBefore(context.metadata, version)}&to=${version}`
  const change = (action: 'delete' | 'undelete', done: string) => async () => {
    await act(action, () => changeVersions(mount, name, action, [version]))
    showSuccess(`${done} version ${version}.`)
    reload()
  }
  return (
    <span class="row-actions">
      {state === 'active' && (
        <Button onClick={() => navigate(compare)} label={`What changed in version ${version}`}>
          What changed
        </Button>
      )}
      {state === 'active' && may('delete', 'update') && (
        <ActionButton run={change('delete', 'Deleted')} label={`Delete version ${version}`}>
          Delete
        </ActionButton>
      )}
      {state === 'deleted' && may('undelete', 'update') && (
        <ActionButton run={change('undelete', 'Undeleted')} label={`Undelete version ${version}`}>
          Undelete
        </ActionButton>
      )}
      {state !== 'destroyed' && may('destroy', 'update') && (
        <Button kind="danger" onClick={() => remove({ kind: 'destroy', version })} label={`Destroy version ${version}`}>
          Destroy
        </Button>
      )}
    </span>
  )
}
